"""A transaction's first batch in a partition is verified, and again if a marker is written during the verification."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from gateway.handlers.records import verification
from gateway.handlers.records.verification import UnverifiedBatchError, verify
from gateway.log.transactions.transactional_writes import TransactionalWrites
from gateway.log.transactions.verifications import Verifications
from gateway.requests.call import Call
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ProduceRequest
from protocol.kafka.records import Record, encode_batch

ID, EPOCH = 7, 3
OLD, ADDING = 11, 12


class Scene:
    def __init__(self, *answers: ErrorCode | Callable[[], ErrorCode]) -> None:
        self.answers = list(answers)
        self.adds: list[bool] = []
        self.verifications = Verifications()
        self.header = parse_header(
            encode_batch([Record(0, 1, None, b"", ())], producer_id=ID, producer_epoch=EPOCH, base_sequence=0)
        )

    async def verify(self, version: int) -> ErrorCode:
        """NONE if it is verified."""
        call: Any = SimpleNamespace(
            request=SimpleNamespace(transactional_id="id"),
            version=version,
            cluster=SimpleNamespace(verifier=SimpleNamespace(verify=self._answer)),
        )
        writes: Any = SimpleNamespace(verifications=self.verifications, needs_verification=lambda header: True)
        try:
            await verify(
                cast(Call[ProduceRequest], call), cast(TransactionalWrites, writes), TopicPartition("t", 0),
                self.header,
            )  # fmt: skip
        except UnverifiedBatchError as error:
            assert self.verifications.epoch(ID) != EPOCH
            return error.code
        assert self.verifications.epoch(ID) == EPOCH
        return ErrorCode.NONE

    async def _answer(self, name: str, producer: Producer, partition: TopicPartition, *, add: bool) -> ErrorCode:
        assert producer == (ID, EPOCH)
        self.adds.append(add)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, ErrorCode) else answer()

    def marker_comes(self) -> ErrorCode:
        self.verifications.forget(ID)
        return ErrorCode.NONE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(verification, "PATIENCE_S", 60.0)


async def test_it_is_asked_once() -> None:
    for version, add in ((OLD, False), (ADDING, True)):
        scene = Scene(ErrorCode.NONE)
        assert await scene.verify(version) is ErrorCode.NONE
        assert scene.adds == [add]


async def test_error_codes_of_clients() -> None:
    for version, code, told in (
        (OLD, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (OLD - 1, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (ADDING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ADDING, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (OLD, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        scene = Scene(code)
        assert await scene.verify(version) is told
        assert len(scene.adds) == 1


async def test_a_partition_is_added_when_the_transaction_before_is_complete() -> None:
    scene = Scene(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE)
    assert await scene.verify(ADDING) is ErrorCode.NONE


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PATIENCE_S", 0.0)
    scene = Scene(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert await scene.verify(ADDING) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(scene.adds) == 1


async def test_an_answer_of_before_a_marker_does_not_count() -> None:
    scene = Scene(ErrorCode.NONE)
    scene.answers = [scene.marker_comes, ErrorCode.NONE]
    assert await scene.verify(ADDING) is ErrorCode.NONE
    assert len(scene.adds) == 2
    scene = Scene(ErrorCode.NONE)
    scene.answers = [scene.marker_comes]
    assert await scene.verify(OLD) is ErrorCode.NOT_ENOUGH_REPLICAS
