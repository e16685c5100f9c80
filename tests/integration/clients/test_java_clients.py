"""Kafka's Java clients of every generation produce, consume, seek and search by time."""

from collections.abc import Callable, Iterable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.java_programs.java_clients import CLIENTS, Event, JavaClient, JavaClients
from tests.support.names import unique_topic

# The same as in RoundTrip.java.
PARTITIONS = 2
RECORDS_PER_PARTITION = 40
RECORD_COUNT = PARTITIONS * RECORDS_PER_PARTITION
TIMESTAMP_ORDINAL = 10
"""The search is for the timestamp of the eleventh record, which is in partition 0 like all with even numbers."""

ADMIN_TIMEOUT_S = 30
BY_VERSION = {client.version: client for client in CLIENTS}
CASES = [
    pytest.param(client, codec, idempotent, id=f"{client}-{codec}{'-idempotent' if idempotent else ''}")
    for client in CLIENTS
    for codec in client.codecs
    for idempotent in ((False, True) if client.idempotent else (False,))
]

EventsByMode = dict[tuple[str, bool], list[Event]]
"""By codec and idempotence."""
RoundTrips = Callable[[JavaClient], EventsByMode]


@pytest.fixture(scope="session")
def java_clients(tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    return JavaClients(tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="session")
def cache() -> dict[tuple[str, str], EventsByMode]:
    return {}


@pytest.fixture
def round_trips(java_clients: JavaClients, bootstrap: str, cache: dict[tuple[str, str], EventsByMode]) -> RoundTrips:
    """All round trips of one version in one JVM, because its start takes most of the time."""

    def run(client: JavaClient) -> EventsByMode:
        key = (bootstrap, client.version)
        if key not in cache:
            cache[key] = _round_trips(java_clients, client, bootstrap)
        return cache[key]

    return run


@pytest.mark.parametrize(("client", "codec", "idempotent"), CASES)
def test_what_was_produced_is_consumed(
    client: JavaClient, codec: str, idempotent: bool, round_trips: RoundTrips
) -> None:
    events = round_trips(client)[codec, idempotent]
    produced = _records(events, "produced")
    assert len(produced) == RECORD_COUNT
    assert any(record["key"] is None for record in produced)
    assert any(record["value"] is None for record in produced)
    assert [record["offset"] for record in produced] == [*range(RECORDS_PER_PARTITION)] * PARTITIONS
    assert _records(events, "consumed") == produced


@pytest.mark.parametrize(("client", "codec", "idempotent"), CASES)
def test_reading_starts_inside_a_batch(
    client: JavaClient, codec: str, idempotent: bool, round_trips: RoundTrips
) -> None:
    events = round_trips(client)[codec, idempotent]
    produced = _records(events, "produced")
    assert _records(events, "from the middle") == produced[RECORDS_PER_PARTITION // 2 : RECORDS_PER_PARTITION]


@pytest.mark.parametrize(("client", "codec", "idempotent"), CASES)
def test_log_bounds_and_search_by_time(
    client: JavaClient, codec: str, idempotent: bool, round_trips: RoundTrips
) -> None:
    events = round_trips(client)[codec, idempotent]
    bounds = {event["partition"]: event for event in events if event["event"] == "bounds"}
    assert [(bounds[p]["start"], bounds[p]["end"]) for p in range(PARTITIONS)] == [
        (0, RECORDS_PER_PARTITION)
    ] * PARTITIONS
    if client.timestamps:
        assert [bounds[p]["at_time"] for p in range(PARTITIONS)] == [TIMESTAMP_ORDINAL // PARTITIONS] * PARTITIONS


@pytest.mark.parametrize(
    "case",
    [
        ("0.9.0.1", "4.3.0", "lz4"),
        ("0.9.0.1", "3.9.2", "gzip"),
        ("0.10.2.2", "4.3.0", "snappy"),
        ("4.3.0", "0.9.0.1", "lz4"),
        ("3.9.2", "0.9.0.1", "gzip"),
        ("4.3.0", "0.10.2.2", "snappy"),
        ("2.8.2", "1.1.1", "none"),
    ],
    ids="-".join,
)
def test_one_generation_reads_what_another_wrote(
    case: tuple[str, str, str], round_trips: RoundTrips, java_clients: JavaClients, bootstrap: str
) -> None:
    writer, reader, codec = case
    produced = _records(round_trips(BY_VERSION[writer])[codec, False], "produced")
    topic = produced[0]["topic"]
    events = java_clients.run(BY_VERSION[reader], bootstrap, [f"consume:{topic}:{RECORD_COUNT}"])
    consumed = _records(events, "consumed")
    # Fields that both versions have: 0.9 has no timestamps, and 0.11 introduced headers.
    common = ["partition", "offset", "key", "value"]
    if BY_VERSION[writer].timestamps and BY_VERSION[reader].timestamps:
        common.append("timestamp")
    assert [[record[name] for name in common] for record in consumed] == [
        [record[name] for name in common] for record in produced
    ]


def _round_trips(java: JavaClients, client: JavaClient, bootstrap: str) -> EventsByMode:
    modes = [(codec, idempotent) for codec in client.codecs for idempotent in {False, client.idempotent}]
    topics = {mode: unique_topic(f"java-{client}-{mode[0]}") for mode in modes}
    _create_topics(bootstrap, topics.values())
    steps = []
    for (codec, idempotent), topic in topics.items():
        steps += [f"produce:{topic}:{codec}:{str(idempotent).lower()}", f"consume:{topic}:{RECORD_COUNT}"]
    events = java.run(client, bootstrap, steps)
    return {mode: [event for event in events if event["topic"] == topic] for mode, topic in topics.items()}


def _create_topics(bootstrap: str, topics: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in topics]
    for created in admin.create_topics(new).values():
        created.result(ADMIN_TIMEOUT_S)


def _records(events: Iterable[Event], kind: str) -> list[Event]:
    """In the order of the log, without the kind, so that produced and consumed compare equal."""
    found = [{name: event[name] for name in event if name != "event"} for event in events if event["event"] == kind]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))
