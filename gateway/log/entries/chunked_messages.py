"""Joins large native messages that their producer split into chunks over several entries (PIP-37).

Each chunk has its own index, hence its own offset. The whole record gets the offset of the last chunk; the offsets of
the other chunks stay empty, like those of Kafka's control batches. Pulsar's consumers also get the message when its
last chunk arrives.
"""

from __future__ import annotations

from collections import OrderedDict

import structlog

from gateway.observability.logs import SparseLog
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

MAX_PENDING = 10
"""The maximum number of incomplete messages of one log; Pulsar's consumers have the same default."""
PIECE_BYTES = 400
"""The memory that a chunk needs besides its data."""

log = SparseLog(structlog.get_logger())


def is_piece(entry: Entry) -> bool:
    """Whether the entry is a chunk to be joined. Encrypted chunks are not joined: each is encrypted separately."""
    return entry.metadata.num_chunks_from_msg > 1 and not entry.metadata.encryption_keys


class ChunkedMessages:
    """The chunks that one reader has read, in the order of the log."""

    def __init__(self, max_bytes: int) -> None:
        self.size_bytes = 0
        """The memory of the chunks that wait for others."""
        self._max_bytes = max_bytes
        self._pending: OrderedDict[bytes, list[memoryview]] = OrderedDict()

    def lacks_pieces(self, entry: Entry) -> bool:
        """Whether this is a message's last chunk, and the reader began after some of its earlier chunks."""
        metadata = entry.metadata
        return (
            _is_last(metadata)
            and metadata.total_chunk_msg_size <= self._max_bytes
            and metadata.chunk_id > len(self._pending.get(metadata.uuid, ()))
        )

    def join(self, entry: Entry) -> Entry | None:
        """The whole message in place of its last chunk; None for earlier chunks, and if chunks are missing."""
        metadata = entry.metadata
        pieces = self._pending.get(metadata.uuid, [])
        if metadata.chunk_id == len(pieces) and metadata.total_chunk_msg_size <= self._max_bytes:
            return self._add(metadata.uuid, pieces, entry)
        if _is_last(metadata):
            log.error("chunks of a native message are missing, or it is too large", position=entry.position)
        if metadata.chunk_id > len(pieces):  # otherwise the chunk is a duplicate
            self._forget(metadata.uuid)
        return None

    def _add(self, uuid: bytes, pieces: list[memoryview], entry: Entry) -> Entry | None:
        if not pieces:
            self.size_bytes += len(uuid)  # any producer may give its messages very long names
        pieces.append(entry.payload)
        self._pending[uuid] = pieces
        self.size_bytes += len(entry.payload) + PIECE_BYTES
        if _is_last(entry.metadata):
            self._forget(uuid)
            return entry.with_payload(_unsplit(entry.metadata), memoryview(bytearray().join(pieces)))
        while len(self._pending) > MAX_PENDING or self.size_bytes > self._max_bytes:
            self._forget(next(iter(self._pending)))
        return None

    def _forget(self, uuid: bytes) -> None:
        pieces = self._pending.pop(uuid, None)
        if pieces is not None:
            self.size_bytes -= len(uuid) + sum(len(piece) + PIECE_BYTES for piece in pieces)


def _is_last(metadata: MessageMetadata) -> bool:
    return metadata.chunk_id == metadata.num_chunks_from_msg - 1


def _unsplit(metadata: MessageMetadata) -> MessageMetadata:
    whole = MessageMetadata()
    whole.CopyFrom(metadata)
    for field in ("uuid", "num_chunks_from_msg", "total_chunk_msg_size", "chunk_id"):
        whole.ClearField(field)
    return whole
