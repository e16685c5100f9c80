"""A transactional producer of single frames, as in `transaction.version` 2: producing adds the partition."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.conformance.records import batch, records
from tests.conformance.requests import produce_fields
from tests.support.raw_client import RawClient

WAIT_S = 30.0
TRANSACTIONAL = 1 << 4
NONE = 0
RETRIABLE = {14, 15, 16, 51}
"""The coordinator is loading, its topic is being created, or the markers of the last transaction are being written."""
LEADER_MOVES = {3, 5, 6, 19}


@dataclass
class RawProducer:
    client: RawClient
    name: str
    id: int = -1
    epoch: int = -1

    def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Retry while the error is retriable."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.client.call(api, version, transactional_id=self.name, **fields)
            if answer["error_code"] not in RETRIABLE or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def init(self, timeout_ms: int = 60_000) -> None:
        """Continue from the current producer id and epoch."""
        answer = self.ask(
            "InitProducerId", 5, transaction_timeout_ms=timeout_ms, producer_id=self.id, producer_epoch=self.epoch
        )
        assert answer["error_code"] == NONE
        self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]

    def write(self, topic: str, text: str, *, version: int = 12, partition: int = 0, sequence: int = 0) -> int:
        """The error code after all retries."""
        identity = (self.id, self.epoch, sequence)
        data = batch(records(1, prefix=text), attributes=TRANSACTIONAL, producer=identity)
        fields = produce_fields(version, {topic: {partition: data}}, transactional_id=self.name)
        deadline = time.monotonic() + WAIT_S
        while True:
            [answer] = self.client.call("Produce", version, **fields)["responses"]
            code = answer["partition_responses"][0]["error_code"]
            if code not in RETRIABLE | LEADER_MOVES or time.monotonic() > deadline:
                return int(code)
            time.sleep(0.02)

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 5) -> int:
        """The error code after all retries."""
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": None}]
        fields = {"group_id": group, "topics": [{"name": topic, "partitions": rows}]}
        identity = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}
        deadline = time.monotonic() + WAIT_S
        while True:
            [answer] = self.client.call("TxnOffsetCommit", version, **identity, **fields)["topics"]
            code = answer["partitions"][0]["error_code"]
            if code not in RETRIABLE or time.monotonic() > deadline:
                return int(code)
            time.sleep(0.02)

    def end(self, *, committed: bool, epoch: int | None = None) -> dict[str, Any]:
        return self.ask(
            "EndTxn", 5, producer_id=self.id, producer_epoch=self.epoch if epoch is None else epoch, committed=committed
        )

    def finish(self, *, committed: bool) -> None:
        answer = self.end(committed=committed)
        assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (
            NONE, self.id, self.epoch + 1
        )  # fmt: skip
        self.epoch = answer["producer_epoch"]
