"""The aborted transactions of a log, kept as numbers, are those of a plain list."""

from __future__ import annotations

from random import Random

import pytest

from gateway.log.transactions.aborted_list import AbortedList, AbortedTransaction
from gateway.log.transactions.state import PartitionTransactions
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

HIGHEST = 2**63 - 1


def aborted(chance: Random, last_offset: int) -> AbortedTransaction:
    first = chance.randint(max(0, last_offset - 9), last_offset - 1)
    return AbortedTransaction(chance.randint(0, HIGHEST), first, last_offset, chance.randint(first, last_offset + 1))


@pytest.mark.parametrize("seed", range(30))
def test_as_a_plain_list(seed: int) -> None:
    chance, offset = Random(seed), 100
    found, plain = AbortedList(), list[AbortedTransaction]()
    for _ in range(60):
        drawn = chance.random()
        if drawn < 0.7:
            offset += chance.randint(1, 5)
            plain.append(aborted(chance, offset))
            found.append(plain[-1])
        elif drawn < 0.85:
            count = chance.randint(0, len(plain))
            del plain[:count]
            found.drop(count)
        else:
            before = plain[0].last_offset if plain else offset
            older = [aborted(chance, before - 3), aborted(chance, before - 1)][: chance.randint(0, 2)]
            plain[:0] = older
            found.prepend(older)
        assert [found[number] for number in range(len(found))] == found.between(0, len(found)) == plain
        asked = chance.randint(80, offset + 5)
        assert found.position(asked) == sum(each.last_offset < asked for each in plain)
        ends = sorted((chance.randint(0, len(plain)), chance.randint(0, len(plain))))
        assert found.between(*ends) == plain[slice(*ends)]


def test_many_take_little_memory() -> None:
    state = PartitionTransactions()
    for number in range(1_000):
        state.data_appended(number, 0, 2 * number)
        state.marker_appended(TransactionMarker(MarkerType.ABORT, number, 0, 0), 2 * number + 1)
    assert state.aborted_count == 1_000
    assert state._aborted._values.itemsize * len(state._aborted._values) == 32 * state.aborted_count
