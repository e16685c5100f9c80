"""Changes of very many settings take effect in slices: at once, they would stop all clients for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.fan_out import sliced
from gateway.security.records import SECRET_KEY, Record, denies_more
from gateway.security.state import SecurityState


async def apply_in_slices(
    state: SecurityState, changes: Iterable[Record], is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """First what denies more, so that nothing is allowed meanwhile that is not allowed before or after. The rest is not
    applied once it is not wanted any more."""
    denying, others = list[Record](), list[Record]()
    async for record in sliced(changes):
        (denying if denies_more(record) else others).append(record)
    async for record in sliced(denying + others):
        if is_wanted():
            state.apply(record)


async def changes_to(state: SecurityState, records: Iterable[Record]) -> list[Record]:
    """The changes that make the state one in which these records were applied, and nothing else."""
    wanted = SecurityState()
    async for record in sliced(records):
        wanted.apply(record)
    before, after = dict(state.records()), dict(wanted.records())
    changes: list[Record] = [(key, None) for key in before.keys() - after.keys()]
    if before.get(SECRET_KEY) != after.get(SECRET_KEY):
        changes.append((SECRET_KEY, None))  # a state keeps its first secret
    changes += [record for record in after.items() if before.get(record[0]) != record[1]]
    return changes
