"""Requests to the transaction coordinator and its answers: the APIs' fields without their wire versions."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.topics import TopicPartition
from protocol.kafka.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from protocol.kafka.errors import ErrorCode

ANY_DURATION = -1


class Producer(NamedTuple):
    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """`expected` is what a producer had that goes on after an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    error: ErrorCode
    producer: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    """AddPartitionsToTxn of one transactional id, and AddOffsetsToTxn, whose partition is the group's.

    `client_version` is the client's transaction.version: 2 if the request comes from a partition's leader that adds
    what a client wrote (AddPartitionsToTxn from version 4), else 0.
    """

    transactional_id: str
    producer: Producer
    partitions: Set[TopicPartition]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """`client_version` is 2 from EndTxn version 5 on, else 0."""

    transactional_id: str
    producer: Producer
    committed: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """`producer` is what the client goes on with; older clients are not told."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


InitProducerIdReply = Callable[[InitProducerIdResponse], None]
AddPartitionsReply = Callable[[ErrorCode], None]
EndTxnReply = Callable[[EndTxnResponse], None]
VerifyPartitionsResponse = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """While markers are written, `partitions` are those that lack theirs. Times are ms since the epoch."""

    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIMESTAMP
    producer: Producer = NO_PRODUCER
    partitions: Set[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """Empty filters take all. `id_pattern` is RE2 and has to match a whole id (KIP-1152)."""

    producer_ids: Set[int] = frozenset()
    states: Set[str] = frozenset()
    longer_than_ms: int = ANY_DURATION
    id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    error: ErrorCode
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()
