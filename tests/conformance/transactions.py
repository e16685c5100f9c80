"""A transactional producer as raw requests, and waiting for changes that both servers make asynchronously."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.records import TRANSACTIONAL, batch, records
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields
from tests.support.raw_client import ConnectionClosedError

UNKNOWN_ID = 2**62
FOREIGN_IDENTITIES: list[dict[str, Any]] = [
    {"producer_epoch": 1},
    {"producer_epoch": -1},
    {"producer_epoch": 32767},
    {"producer_id": UNKNOWN_ID},
    {"producer_id": -1},
    {"producer_id": UNKNOWN_ID, "producer_epoch": 9},
    {"transactional_id": "nobody"},
    {"transactional_id": ""},
]
"""Requests with these fields come from another producer than the current one."""
OF_CLIENTS, OF_BROKERS = range(4), range(4, 6)
"""The versions of AddPartitionsToTxn for clients, and later ones for brokers."""
LONG_ID, LONGER_ID = "x" * 32_000, "x" * 65_536
FLEXIBLE = {"InitProducerId": 2, "AddPartitionsToTxn": 3, "EndTxn": 3}
TRANSACTION, TIMEOUT_MS = 1, 60_000
FOR_EVER_MS = str(2**63 - 1)
CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS = 51, 19
READ_COMMITTED = 1
PRODUCE_VERSION, FETCH_VERSION = 9, 11
WITHIN_S, POLL_S = 60.0, 0.02

Topics = dict[str, list[int]]


class Transactional:
    """A producer with a transactional id of its own. The version is an argument of each request.

    Its transaction is aborted when the case ends, unless it `stays_open`: cases share partitions.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        timeout_ms: int = TIMEOUT_MS,
        name: str | None = None,
        stays_open: bool = False,
    ) -> None:
        self.transactional_id = name or new_transactional_id(conversation)
        self._conversation = conversation
        self._sequences: dict[tuple[str, int], int] = {}
        answer = unnoted(conversation, lambda: init(conversation, 4, self.transactional_id, timeout_ms=timeout_ms))
        self.id: int = answer["producer_id"]
        self.epoch: int = answer["producer_epoch"]
        conversation.names.producer_ids[self.id] = f"<producer {len(conversation.names.producer_ids)}>"
        if not stays_open:
            conversation.at_close(self._abort_what_is_open)

    def _abort_what_is_open(self) -> None:
        """Abort like another producer that takes over the transactional id."""
        client = self._conversation.client
        with suppress(ConnectionClosedError, OSError):
            asked = {"transactional_ids": [self.transactional_id]}
            (found,) = client.call("DescribeTransactions", 0, **asked)["transaction_states"]
            if found["transaction_state"] in ("Ongoing", "PrepareAbort", "PrepareCommit"):
                fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
                eventually(
                    lambda: client.call("InitProducerId", 0, **fields),
                    lambda answer: CONCURRENT_TRANSACTIONS not in _errors(answer),
                )

    def init(self, version: int, **more: Any) -> dict[str, Any]:
        return init(self._conversation, version, self.transactional_id, **more)

    def identity(self, **more: Any) -> dict[str, Any]:
        """The fields that identify the producer in every request of a transaction."""
        mine = {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}
        return mine | more

    def add(self, version: int, topics: Topics, **more: Any) -> dict[str, Any]:
        return when_free(self._conversation, "AddPartitionsToTxn", version, **adding(self.identity(**more), topics))

    def add_offsets(self, version: int, group: str, **more: Any) -> dict[str, Any]:
        return when_free(self._conversation, "AddOffsetsToTxn", version, group_id=group, **self.identity(**more))

    def end(self, version: int, *, committed: bool, **more: Any) -> dict[str, Any]:
        return when_free(self._conversation, "EndTxn", version, committed=committed, **self.identity(**more))

    def data(self, count: int = 1, *, prefix: str = "t", attributes: int = TRANSACTIONAL, **more: int) -> bytes:
        """A batch of the transaction; `producer_id`, `epoch` and `sequence` replace the right ones."""
        producer = (more.get("producer_id", self.id), more.get("epoch", self.epoch), more.get("sequence", 0))
        return batch(records(count, prefix=prefix), attributes=attributes, producer=producer)

    def write(self, topic: str, count: int = 1, partition: int = 0, *, prefix: str = "t") -> None:
        """Write records in order, to a partition that was added; not part of the comparison."""
        sequence = self._sequences.get((topic, partition), 0)
        data = self.data(count, prefix=prefix, sequence=sequence)
        fields = produce_fields(PRODUCE_VERSION, {topic: {partition: data}}, transactional_id=self.transactional_id)
        answer = eventually(
            lambda: self._conversation.client.call("Produce", PRODUCE_VERSION, **fields),
            lambda found: _produced(found) != NOT_ENOUGH_REPLICAS,
        )
        assert _produced(answer) == 0, answer
        self._sequences[topic, partition] = sequence + count

    # Whole transactions as set-up, not part of the comparison.

    def begin(self, topic: str, count: int = 1, *partitions: int, prefix: str = "t") -> None:
        """An open transaction with this number of records in each of the partitions (0)."""
        chosen = partitions or (0,)
        answer = unnoted(self._conversation, lambda: self.add(3, {topic: list(chosen)}))
        assert not _errors(answer) - {0}, answer
        for partition in chosen:
            self.write(topic, count, partition, prefix=prefix)

    def finish(self, *, committed: bool) -> None:
        """Returns when every partition has its marker."""
        answer = unnoted(self._conversation, lambda: self.end(3, committed=committed))
        assert answer["error_code"] == 0, answer
        await_complete(self._conversation, self.transactional_id)


def one_segment(
    conversation: Conversation, name: str, partitions: int = 2, configs: dict[str, str] | None = None
) -> str:
    """A topic of this name with one segment. Its records are years old and markers are new: Kafka would roll segments,
    and responses would end there."""
    return conversation.topic(name, partitions=partitions, configs={"segment.ms": FOR_EVER_MS} | (configs or {}))


def new_transactional_id(conversation: Conversation) -> str:
    """A transactional id whose coordinator is ready."""
    transactional_id = f"{conversation.names.prefix}{uuid.uuid4()}"
    unnoted(
        conversation,
        lambda: conversation.when_loaded("FindCoordinator", 1, key=transactional_id, key_type=TRANSACTION),
    )
    return transactional_id


def init(
    conversation: Conversation, version: int, transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, **more: Any
) -> dict[str, Any]:
    """InitProducerId, retried while an earlier transaction is being ended."""
    fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    expected = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    return when_free(conversation, "InitProducerId", version, **(fields | expected | more))


def adding(identity: dict[str, Any], topics: Topics) -> dict[str, Any]:
    """The fields of AddPartitionsToTxn v0 to v3."""
    rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"v3_and_below_topics": rows} | {f"v3_and_below_{name}": value for name, value in identity.items()}


def when_free(conversation: Conversation, api: str, version: int, **fields: Any) -> dict[str, Any]:
    """Retry until the previous transaction has ended and coordinators are ready, as clients do; record the last
    response."""

    def ask() -> dict[str, Any]:
        conversation.answers[:] = before
        return conversation.when_loaded(api, version, **fields)

    before = list(conversation.answers)
    return eventually(ask, lambda answer: CONCURRENT_TRANSACTIONS not in _errors(answer))


def unnoted(conversation: Conversation, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A response that is not compared."""
    before = list(conversation.answers)
    answer = ask()
    conversation.answers[:] = before
    return answer


def eventually(ask: Callable[[], dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first response that satisfies `holds`, or the last one."""
    deadline = time.monotonic() + WITHIN_S
    while not holds(answer := ask()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return answer


def describe(conversation: Conversation, *transactional_ids: str) -> dict[str, Any]:
    return conversation.call("DescribeTransactions", 0, transactional_ids=list(transactional_ids))


def await_state(conversation: Conversation, transactional_id: str, *states: str) -> None:
    asked = {"transactional_ids": [transactional_id]}
    answer = eventually(
        lambda: conversation.client.call("DescribeTransactions", 0, **asked),
        lambda found: found["transaction_states"][0]["transaction_state"] in states,
    )
    assert answer["transaction_states"][0]["transaction_state"] in states, answer


def await_complete(conversation: Conversation, transactional_id: str) -> None:
    await_state(conversation, transactional_id, "CompleteCommit", "CompleteAbort")


def read_committed(conversation: Conversation, topic: str, offset: int | None = None, partition: int = 0) -> None:
    """Compare what a read_committed consumer gets from an offset (of the case's start): records, LSO, aborted
    transactions."""
    at = conversation.names.start_offset if offset is None else conversation.names.start_offset + offset
    parts = [fetch_partition(FETCH_VERSION, partition, at)]
    fields = fetch_fields(FETCH_VERSION, [{"topic": topic, "partitions": parts}], isolation_level=READ_COMMITTED)
    conversation.call("Fetch", FETCH_VERSION, **fields)


def _produced(answer: dict[str, Any]) -> int:
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def _errors(answer: Any) -> set[int]:
    """Every error code in a response, at any depth."""
    if isinstance(answer, list):
        return {code for item in answer for code in _errors(item)}
    if not isinstance(answer, dict):
        return set()
    own = {value for name, value in answer.items() if name.endswith("error_code")}
    return own | {code for value in answer.values() for code in _errors(value)}


def shared_topic(conversation: Conversation, name: str = "transactions") -> str:
    topic = one_segment(conversation, name, partitions=3)
    conversation.start_here(topic)
    return topic
