"""Native messages with the properties of gateways' entries, in partitions with transactions, on a real Pulsar."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from gateway.log.bounds.transaction_flag import CHECKPOINT, CHECKPOINT_AT, NONE_UP_TO
from gateway.log.transactions.checkpoint import Checkpoint, encode_checkpoint
from gateway.pulsar.position import Position
from protocol.kafka.records import Record as BatchRecord
from protocol.kafka.records import encode_batch
from protocol.pulsar.entry import encode_message
from tests.integration.confluent import create_topic
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import lone_gateway_on, running
from tests.integration.transactional import Transactions, read
from tests.support.names import unique_topic

NOTHING_OPEN = encode_checkpoint(Checkpoint(Position(0, 0), 1, {}))
PROPERTIES = (
    {CHECKPOINT: NOTHING_OPEN},
    {CHECKPOINT: "nonsense"},
    {CHECKPOINT: encode_checkpoint(Checkpoint(Position(0, -7), 3, {}, before=Position(-9, 1)))},
    {CHECKPOINT: encode_checkpoint(Checkpoint(Position(0, 0), 1 << 40, {}, aborted_from=1 << 40))},
    *({CHECKPOINT_AT: at, NONE_UP_TO: at} for at in (f"0:{10**30}", f"0:{2**62}", "0:0", "0:-1", "-1:-1", "1:1")),
)  # fmt: skip


def native(properties: dict[str, str]) -> Odd:
    return Odd(encode_message(b"native"), properties=properties)


def as_of_a_gateway(properties: dict[str, str]) -> Odd:
    batch = encode_batch([BatchRecord(0, 1, None, b"native")])
    return Odd(bytes(batch), properties={"entry.format": "kafka", **properties})


def test_they_neither_hide_transactions_nor_stop_a_log(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """But for a whole checkpoint in an entry like one of a gateway: who writes that may write markers as well."""
    forged = [native(PROPERTIES[0]), native(PROPERTIES[-1]), *map(as_of_a_gateway, PROPERTIES[1:])]
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway:
        namespace = f"kafka/{gateway.config['pulsar']['namespace']}"
        topic, number = unique_topic("forged"), len(forged)
        create_topic(gateway.bootstrap, topic, number)
        writer, hanging = (Transactions(gateway.bootstrap, unique_topic("writer")) for _ in range(2))
        for partition in range(number):
            writer.write(topic, b"aborted", partition=partition)
        writer.abort()
        for partition in range(number):
            hanging.write(topic, b"open", partition=partition)
        for partition, entry in enumerate(forged):
            asyncio.run(write(pulsar, f"{topic}-partition-{partition}", [entry], namespace))
        gateway.stop()
        gateway.start()
        gateway.wait_ready()
        for partition in range(number):
            assert read(gateway.bootstrap, topic, partition=partition) == [], forged[partition]
        hanging.commit()
        writer = Transactions(gateway.bootstrap, unique_topic("writer"))
        for partition in range(number):
            writer.write(topic, b"last", partition=partition)
        writer.commit()
        for partition in range(number):
            found = read(gateway.bootstrap, topic, partition=partition)
            assert found == [b"open", b"native", b"last"], forged[partition]
