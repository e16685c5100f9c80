"""Compacted topics with transactions on a real Pulsar: what the gateway removes by compaction, and what clients then
read."""

import threading
import time
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.integration.admin_proxy import AdminProxy
from tests.integration.cleaned import (
    COMPACT,
    compacted_entries,
    compacted_ledger,
    drop_and_restart,
    values_by_key,
    write_rounds,
)
from tests.integration.confluent import create_topic
from tests.integration.entries.test_compaction import alter, compact
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, running
from tests.integration.transactional import Transactions, await_markers, read_pairs
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

CLEANED_WITHIN_S = 90.0
CLEANINGS, CLEANING_S = 6, 20.0


def write_until_clean(
    gateway: GatewayProcess, producer: Transactions, topic: str, expected: dict[bytes, list[bytes]]
) -> None:
    """A cleaning may begin before the last rounds are written, and too little is left for another one."""
    for _ in range(CLEANINGS):
        deadline = time.monotonic() + CLEANING_S
        while time.monotonic() < deadline:
            if values_by_key(read_pairs(gateway.bootstrap, topic)) == expected:
                return
            time.sleep(0.2)
        write_rounds(producer, topic, 3, b"second")
    raise AssertionError(f"never clean: {read_pairs(gateway.bootstrap, topic)}")


def test_a_changelog_stays_small_and_right(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """Aborted values never win, committed ones are never lost, an open transaction survives, deletions delete."""
    topic, admin = unique_topic("changelog"), Admin(pulsar, "kafka/cleaned")
    with running(gateway_on(pulsar, tmp_path, pulsar={"namespace": "cleaned"})) as gateway:
        create_topic(gateway.bootstrap, topic, config=COMPACT)
        producer = Transactions(gateway.bootstrap, unique_topic("writer"))
        for key in range(5):
            producer.write(topic, b"kept", key=b"cold %d" % key)
        producer.write(topic, b"to be deleted", key=b"gone")
        producer.commit()
        for key in range(5):
            producer.write(topic, b"aborted", key=b"cold %d" % key)
        producer.abort()
        producer.write(topic, None, key=b"gone")
        producer.commit()
        write_rounds(producer, topic, 30, b"first")
        other = Transactions(gateway.bootstrap, unique_topic("open"), transaction_timeout_ms=600_000)
        other.write(topic, b"open", key=b"cold 0")
        expected = {b"cold %d" % key: [b"kept"] for key in range(5)}
        expected |= {b"hot %d" % key: [b"first"] for key in range(10)}

        wait_for(lambda: compacted_ledger(admin, topic) >= 0, "the first compaction", CLEANED_WITHIN_S)
        wait_for(
            lambda: len(read_pairs(gateway.bootstrap, topic, committed=False)) < 30, "what is read gets few",
            CLEANED_WITHIN_S,
        )
        found = read_pairs(gateway.bootstrap, topic)
        assert values_by_key(found, without=b"gone") == expected
        assert [pair for pair in read_pairs(gateway.bootstrap, topic, committed=False) if pair[1] == b"aborted"] == []
        other.commit()
        expected[b"cold 0"] = [b"kept", b"open"]
        assert values_by_key(read_pairs(gateway.bootstrap, topic), without=b"gone") == expected

        drop_and_restart(admin, gateway, topic)
        assert values_by_key(read_pairs(gateway.bootstrap, topic), without=b"gone") == expected
        before = compacted_ledger(admin, topic)
        again = Transactions(gateway.bootstrap, unique_topic("writer"))
        write_rounds(again, topic, 30, b"second")
        wait_for(lambda: compacted_ledger(admin, topic) != before, "the second compaction", CLEANED_WITHIN_S)
        expected = {b"cold %d" % key: [b"kept"] for key in range(1, 5)} | {b"cold 0": [b"open"]}
        expected |= {b"hot %d" % key: [b"second"] for key in range(10)}
        write_until_clean(gateway, again, topic, expected)
        assert compacted_entries(admin, topic) < 100
        drop_and_restart(admin, gateway, topic)
        assert values_by_key(read_pairs(gateway.bootstrap, topic)) == expected
        assert values_by_key(read_pairs(gateway.bootstrap, topic, committed=False)) == expected

        late = Transactions(gateway.bootstrap, unique_topic("writer"))
        late.write(topic, b"aborted", key=b"cold 1")
        late.abort()
        await_markers(gateway.bootstrap)  # a marker that follows the compaction is dropped with the other entries
        compact(admin, topic)
        drop_and_restart(admin, gateway, topic)
        assert values_by_key(read_pairs(gateway.bootstrap, topic)) == expected, "aborted since the last cleaning"


def test_a_gateway_is_killed_before_pulsar_compacts(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """What it wanted to remove has tombstones. Pulsar compacts before a gateway has looked at the topic again."""
    topic, namespace = unique_topic("changelog"), unique_topic("cleaned")
    admin, asked = Admin(pulsar, f"kafka/{namespace}"), threading.Event()

    def passes(method: str, path: str) -> bool:
        compacts = method == "PUT" and path.endswith("/compaction")
        if compacts:
            asked.set()
        return not compacts

    with AdminProxy(pulsar.admin_url).running() as proxy:
        proxy.passes = passes
        gateway = GatewayProcess(tmp_path, pulsar.service_url, proxy.url, {"pulsar": {"namespace": namespace}})
        with running(gateway):
            create_topic(gateway.bootstrap, topic, config=COMPACT | {"segment.bytes": str(1 << 30)})
            producer, other = (
                Transactions(gateway.bootstrap, unique_topic("writer"), transaction_timeout_ms=600_000)
                for _ in range(2)
            )
            producer.write(topic, b"kept", key=b"cold 0")
            producer.write(topic, b"kept", key=b"cold 1")
            producer.commit()
            producer.write(topic, b"aborted", key=b"cold 1")
            producer.abort()
            write_rounds(producer, topic, 6, b"last")
            alter(gateway, topic, "segment.bytes", COMPACT["segment.bytes"])
            other.write(topic, b"open", key=b"cold 0")  # and now the log is looked at
            assert asked.wait(CLEANED_WITHIN_S), "the gateway asks for the compaction"
            kill_and_start(gateway)
            expected = {b"cold 0": [b"kept"], b"cold 1": [b"kept"]}
            expected |= {b"hot %d" % key: [b"last"] for key in range(10)}
            found = values_by_key(read_pairs(gateway.bootstrap, topic))
            assert {key: values[-1:] for key, values in found.items()} == expected
            assert compacted_ledger(admin, topic) < 0
            compact(admin, topic)
            kill_and_start(gateway)
            assert values_by_key(read_pairs(gateway.bootstrap, topic)) == expected
            other.commit()
            expected[b"cold 0"].append(b"open")
            assert values_by_key(read_pairs(gateway.bootstrap, topic)) == expected
            drop_and_restart(admin, gateway, topic)
            assert values_by_key(read_pairs(gateway.bootstrap, topic)) == expected


def kill_and_start(gateway: GatewayProcess) -> None:
    gateway.kill()
    gateway.start()
    gateway.wait_ready()
