"""The cost of authorization and quotas for each batch, in calls, which are the same on every machine.

`make security` measures the processor time.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.bench.inside.guarded import guarded_scene
from tests.bench.inside.produce import ProduceCase, ProduceLoad
from tests.bench.inside.scene import Scene

CASE = ProduceCase(10, 1)
WARM_UP_STEPS = COUNTED_STEPS = 3
MAX_ADDED_CALLS = 10


async def test_rights_and_quotas_add_few_calls() -> None:
    added = await _calls(guarded_scene()) - await _calls(Scene())
    assert 0 < added <= MAX_ADDED_CALLS


async def _calls(scene: Scene) -> int:
    """Python and C calls for one batch, when all cached values have been computed.

    The fewest of some steps: once in a second, a quota begins a new sample.
    """
    load = ProduceLoad(scene, CASE)
    for _ in range(WARM_UP_STEPS):
        await load.next_step().run()
        await load.until_all_answered()
    return min([await _calls_of_step(scene, load) for _ in range(COUNTED_STEPS)])


async def _calls_of_step(scene: Scene, load: ProduceLoad) -> int:
    step, count = load.next_step(), 0

    def profile(_frame: object, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        await step.run()
        scene.broker.say(scene.broker.answers())
    finally:
        sys.setprofile(None)
    await load.until_all_answered()
    return count
