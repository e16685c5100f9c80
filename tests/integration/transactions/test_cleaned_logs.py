"""Compacted topics with transactions that the gateway cleans, and that are not compacted for a while."""

from __future__ import annotations

from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.integration.cleaned import (
    COMPACT,
    compacted_ledger,
    drop_and_restart,
    values_by_key,
    write_rounds,
)
from tests.integration.confluent import create_topic
from tests.integration.entries.test_compaction import alter
from tests.integration.native import Admin, wait_for
from tests.integration.servers import events, gateway_on, running
from tests.integration.transactional import Transactions, read_pairs
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

CHECK = "gateway.coordination.transactions.cleaning.CHECK_S"
CHECKED_S = 0.5
MESSAGES = {"entry.format": "pulsar"}
"""Without it, a topic that is not compacted gets record batches, and cannot be compacted again."""
HOT = {b"hot %d" % key for key in range(10)}


def cleanings(gateway: GatewayProcess, topic: str) -> int:
    return sum(event["topic"] == topic for event in events(gateway, "cleaned"))


def clean(gateway: GatewayProcess, producer: Transactions, topic: str, last: bytes) -> None:
    """Write until the log has been cleaned of all that was written before."""
    for number in range(2):  # the first one may have begun before
        before = cleanings(gateway, topic)
        write_rounds(producer, topic, 3, b"%s %d" % (last, number))
        wait_for(lambda: cleanings(gateway, topic) > before, "a cleaning")  # noqa: B023


def test_a_topic_that_is_not_compacted_for_a_while(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """Aborted records that had been removed are in the log again: they do not replace what was committed before."""
    topic, namespace = unique_topic("changelog"), unique_topic("cleaned")
    admin, gateway = Admin(pulsar, f"kafka/{namespace}"), gateway_on(pulsar, tmp_path, pulsar={"namespace": namespace})
    gateway.constants[CHECK] = CHECKED_S

    def committed() -> dict[bytes, list[bytes]]:
        found = values_by_key(read_pairs(gateway.bootstrap, topic))
        return {key: values for key, values in found.items() if key not in HOT}

    def everything() -> list[bytes | None]:
        return [value for _, value in read_pairs(gateway.bootstrap, topic, committed=False)]

    with running(gateway):
        create_topic(gateway.bootstrap, topic, config=COMPACT | MESSAGES)
        producer = Transactions(gateway.bootstrap, unique_topic("writer"))
        producer.write(topic, b"kept", key=b"cold")
        producer.commit()
        producer.write(topic, b"aborted", key=b"cold")
        producer.abort()
        expected = {b"cold": [b"kept"]}
        for last in (b"first", b"second"):  # what the second one stores does not name the aborted record any more
            clean(gateway, producer, topic, last)
        assert committed() == expected
        assert b"aborted" not in everything()

        alter(gateway, topic, "cleanup.policy", "delete")
        wait_for(lambda: compacted_ledger(admin, topic) < 0, "the compacted log is gone")
        assert committed() == expected  # for this, all is read again
        assert b"aborted" in everything()
        alter(gateway, topic, "cleanup.policy", "compact")
        assert committed() == expected
        for last in (b"third", b"fourth"):
            clean(gateway, producer, topic, last)
            assert committed() == expected
        assert b"aborted" not in everything()
        drop_and_restart(admin, gateway, topic)
        assert committed() == expected
