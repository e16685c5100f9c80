"""Tests of code that continues in later turns of the event loop."""

import asyncio

TURNS = 30
"""More than any chain of callbacks and tasks in these tests needs."""


async def let_callbacks_run() -> None:
    """Everything that is ready runs, and what it makes ready. Timers do not."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
