"""The transactions of a log on a real Pulsar: with another leader, from old data, in each format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.conformance.requests import fetch_fields, fetch_partition
from tests.conformance.transactions import READ_COMMITTED
from tests.integration import native
from tests.integration.confluent import create_topic, delete_records, watermarks
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, running
from tests.integration.transactional import Transactions, await_markers, read, transaction_state
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

NAMESPACE = "transactions"
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def gateway(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The only gateway of its namespace, which tests restart."""
    work_dir = tmp_path_factory.mktemp("transactions")
    with running(gateway_on(pulsar, work_dir, pulsar={"namespace": NAMESPACE})) as process:
        yield process


@pytest.fixture
def admin(pulsar: PulsarStandalone) -> Admin:
    return Admin(pulsar, f"kafka/{NAMESPACE}")


def restart(gateway: GatewayProcess, *, kill: bool) -> None:
    if kill:
        gateway.kill()
    else:
        gateway.stop()
    gateway.start()
    gateway.wait_ready()


@pytest.mark.parametrize("config", [{}, COMPACT], ids=["batches", "messages"])
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_the_next_leader_knows(gateway: GatewayProcess, kill: bool, config: dict[str, str]) -> None:
    topic = unique_topic("taken-over")
    create_topic(gateway.bootstrap, topic, config=config)
    one = Transactions(gateway.bootstrap, f"{topic}-1")
    two = Transactions(gateway.bootstrap, f"{topic}-2")
    one.write(topic, b"committed", key=b"k")
    one.commit()
    one.write(topic, b"aborted", key=b"k")
    two.write(topic, b"open", key=b"o")
    one.abort()
    one.write(topic, b"behind what is open", key=b"k")
    one.commit()
    assert read(gateway.bootstrap, topic) == [b"committed"]

    restart(gateway, kill=kill)
    assert read(gateway.bootstrap, topic) == [b"committed"]
    everything = [b"committed", b"aborted", b"open", b"behind what is open"]
    assert read(gateway.bootstrap, topic, committed=False) == everything
    two.write(topic, b"more", key=b"m")
    two.commit()
    assert read(gateway.bootstrap, topic) == [b"committed", b"open", b"behind what is open", b"more"]
    one.write(topic, b"last", key=b"k")
    one.abort()
    assert read(gateway.bootstrap, topic) == [b"committed", b"open", b"behind what is open", b"more"]


def test_below_what_native_producers_wrote(gateway: GatewayProcess, pulsar: PulsarStandalone) -> None:
    topic = unique_topic("native-tail")
    create_topic(gateway.bootstrap, topic)
    one = Transactions(gateway.bootstrap, topic)
    one.write(topic, b"aborted")
    one.abort()
    one.write(topic, b"open")
    with native.producer(pulsar, f"persistent://kafka/{NAMESPACE}/{topic}-partition-0") as producer:
        for number in range(100):
            producer.send(b"native %d" % number)
    assert read(gateway.bootstrap, topic) == []
    restart(gateway, kill=True)
    assert read(gateway.bootstrap, topic) == []
    one.commit()
    assert read(gateway.bootstrap, topic) == [b"open", *(b"native %d" % number for number in range(100))]


def test_behind_deleted_records(gateway: GatewayProcess) -> None:
    topic = unique_topic("deleted")
    create_topic(gateway.bootstrap, topic)
    one = Transactions(gateway.bootstrap, topic)
    one.write(topic, b"aborted 0", b"aborted 1")
    one.abort()
    one.write(topic, b"open 3", b"open 4")
    delete_records(gateway.bootstrap, topic, 1)
    for kill in (False, True):
        assert read(gateway.bootstrap, topic) == []
        if not kill:
            restart(gateway, kill=True)
    delete_records(gateway.bootstrap, topic, 4)
    assert read(gateway.bootstrap, topic) == []
    one.commit()
    assert read(gateway.bootstrap, topic)[-1] == b"open 4"


def test_behind_what_has_expired(gateway: GatewayProcess, admin: Admin) -> None:
    """Transactions that lie in expired ledgers whole or in part, or stay open there."""
    topic = unique_topic("expired")
    create_topic(gateway.bootstrap, topic)
    gone, across, opened, others = (Transactions(gateway.bootstrap, f"{topic}-{number}") for number in range(4))
    gone.write(topic, b"aborted 0", b"aborted 1")
    gone.abort()
    across.write(topic, b"aborted 3")
    opened.write(topic, b"open 4")
    others.write(topic, b"committed 5")
    others.commit()
    await_markers(gateway.bootstrap)
    admin.unload(f"{topic}-partition-0")
    across.write(topic, b"aborted 7")
    others.write(topic, b"committed 8")
    others.commit()
    admin.truncate(f"{topic}-partition-0")
    wait_for(lambda: watermarks(gateway.bootstrap, topic) == (7, 7), "the last stable offset is the log's start")
    restart(gateway, kill=True)
    assert watermarks(gateway.bootstrap, topic) == (7, 7)
    assert read(gateway.bootstrap, topic) == []
    assert read(gateway.bootstrap, topic, committed=False) == [b"aborted 7", b"committed 8"]

    across.abort()
    opened.write(topic, b"open 11")
    opened.commit()
    await_markers(gateway.bootstrap)
    for kill in (False, True):
        assert watermarks(gateway.bootstrap, topic) == (7, 13)
        assert read(gateway.bootstrap, topic) == [b"committed 8", b"open 11"]
        assert aborted(gateway.bootstrap, topic, 7) == [7]
        if not kill:
            restart(gateway, kill=True)

    opened.write(topic, b"open 13")
    admin.unload(f"{topic}-partition-0")
    assert watermarks(gateway.bootstrap, topic) == (7, 13)
    admin.truncate(f"{topic}-partition-0")
    wait_for(lambda: watermarks(gateway.bootstrap, topic) == (14, 14), "nothing is left, and a transaction is open")
    assert read(gateway.bootstrap, topic) == []
    restart(gateway, kill=True)
    assert watermarks(gateway.bootstrap, topic) == (14, 14)
    others.write(topic, b"committed 14")
    others.commit()
    opened.write(topic, b"open 16")
    assert read(gateway.bootstrap, topic) == [b"committed 14"]  # of what is still open, nothing before this is left
    opened.abort()
    assert read(gateway.bootstrap, topic) == [b"committed 14"]


def aborted(bootstrap: str, topic: str, offset: int) -> list[int]:
    """Where the records begin that a read_committed consumer leaves out from this offset on."""
    asked = [{"topic": topic, "partitions": [fetch_partition(11, 0, offset)]}]
    with connected(bootstrap) as client:
        answer = client.call("Fetch", 11, **fetch_fields(11, asked, isolation_level=READ_COMMITTED))
    [row] = answer["responses"][0]["partitions"]
    assert row["error_code"] == 0, row
    return [max(offset, each["first_offset"]) for each in row["aborted_transactions"]]


def test_a_topic_that_was_deleted_in_pulsar(gateway: GatewayProcess, admin: Admin) -> None:
    """The gateway hears nothing of it: the leader of the partition finds out."""
    kept, gone = unique_topic("kept"), unique_topic("gone")
    for topic in (kept, gone):
        create_topic(gateway.bootstrap, topic)
    one = Transactions(gateway.bootstrap, gone)
    one.write(gone, b"gone")
    one.write(kept, b"first")
    admin.topic("DELETE", gone, "/partitions?force=true")
    one.commit()
    wait_for(lambda: transaction_state(gateway.bootstrap, gone) == "CompleteCommit", "the transaction ends")
    one.write(kept, b"second")
    one.commit()
    assert read(gateway.bootstrap, kept) == [b"first", b"second"]


def test_pulsar_does_not_compact_by_itself(gateway: GatewayProcess, admin: Admin) -> None:
    topic = unique_topic("compacted")
    create_topic(gateway.bootstrap, topic, config=COMPACT | {"segment.bytes": "1048576"})
    threshold = partial(admin.topic, "GET", topic, "/compactionThreshold")
    wait_for(lambda: threshold() == 1048576, "the broker knows the threshold")
    one = Transactions(gateway.bootstrap, topic)
    one.write(topic, b"first", key=b"k")
    wait_for(lambda: threshold() > 2**60, "the broker knows that it may not compact")
    one.commit()
    assert read(gateway.bootstrap, topic) == [b"first"]


def test_the_gateway_that_only_reads_follows(gateway: GatewayProcess) -> None:
    """A consumer waits for a commit; the response arrives with it."""
    topic = unique_topic("waits")
    create_topic(gateway.bootstrap, topic)
    one = Transactions(gateway.bootstrap, topic)
    for number in range(20):
        one.write(topic, b"%d" % number)
        one.commit() if number % 2 else one.abort()
    wait_for(
        lambda: read(gateway.bootstrap, topic) == [b"%d" % number for number in range(1, 20, 2)], "what was committed"
    )


def test_what_was_aborted_long_ago(gateway: GatewayProcess) -> None:
    """More aborted transactions than one checkpoint holds: the next leader reads several checkpoints."""
    topic = unique_topic("aborted")
    create_topic(gateway.bootstrap, topic)
    one, two = (Transactions(gateway.bootstrap, f"{topic}-{number}") for number in range(2))
    committed = []
    for number in range(600):
        one.write(topic, b"aborted %d" % number)
        if number % 100 == 50:
            committed.append(b"committed %d" % number)
            two.write(topic, committed[-1])
            two.commit()
        one.abort()
    two.write(topic, b"open")
    one.write(topic, b"behind what is open")
    one.commit()
    restart(gateway, kill=True)
    assert read(gateway.bootstrap, topic) == committed
    assert read(gateway.bootstrap, topic, start=600) == committed[3:]
