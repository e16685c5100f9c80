"""Incremental fetch sessions (KIP-227)."""

import uuid
from collections.abc import Iterable

import pytest

from gateway.errors import KafkaError
from gateway.fetching import fetch_session
from gateway.fetching.fetch_session import MAX_EPOCH, FetchedPartition, FetchSession, FetchSessions, Key
from gateway.topics.topic_names import MAX_NAME_LENGTH
from protocol.kafka.errors import ErrorCode

OWNER = "/10.0.0.1"


def part(partition: int, offset: int = 0, topic: str = "t") -> FetchedPartition:
    return FetchedPartition(topic, partition, offset, 1_000, -1, -1)


def create(sessions: FetchSessions, *parts: FetchedPartition) -> FetchSession:
    session = sessions.create(OWNER, parts, uses_topic_ids=False)
    assert session is not None
    return session


def resume(
    sessions: FetchSessions, session: FetchSession, epoch: int, *changed: FetchedPartition,
    forgotten: Iterable[Key] = (), owner: str = OWNER, uses_topic_ids: bool = False,
) -> FetchSession | None:  # fmt: skip
    return sessions.resume(
        owner, session.session_id, epoch, changed, {*forgotten}, uses_topic_ids=uses_topic_ids
    )


def test_a_session_keeps_what_is_not_named() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0), part(1), part(2))
    resumed = resume(sessions, session, 1, part(1, 50), part(3), forgotten=[("t", 0), ("t", 9)])
    assert resumed is not None
    assert [(one.partition, one.offset) for one in resumed.partitions.values()] == [(1, 50), (2, 0), (3, 0)]


def test_what_was_answered_survives_an_update() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    session.partitions["t", 0].answered_watermark = 7
    resume(sessions, session, 1, part(0, 5))
    assert session.partitions["t", 0].offset == 5
    assert session.partitions["t", 0].answered_watermark == 7


def test_epochs_rise_one_by_one_and_wrap_to_one() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    for epoch in (1, 2):
        resume(sessions, session, epoch)
    for epoch in (1, 2, 4, -1):
        with pytest.raises(KafkaError) as raised:
            resume(sessions, session, epoch)
        assert raised.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = MAX_EPOCH
    resume(sessions, session, MAX_EPOCH)
    assert session.epoch == 1


def test_an_unknown_or_closed_session_is_refused() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    sessions.close(OWNER, session.session_id)
    sessions.close(OWNER, session.session_id)
    with pytest.raises(KafkaError) as raised:
        resume(sessions, session, 1)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topics_are_named_in_one_way_for_the_life_of_a_session() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    with pytest.raises(KafkaError) as raised:
        resume(sessions, session, 1, part(1), uses_topic_ids=True)
    assert raised.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert (session.epoch, len(session.partitions)) == (1, 1)


def test_a_session_without_partitions_is_closed() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    assert resume(sessions, session, 1, forgotten=[("t", 0)]) is None
    assert sessions.find(OWNER, session.session_id) is None


def test_only_a_session_that_was_long_not_used_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = FetchSessions(2)
    first, second = create(sessions, part(0)), create(sessions, part(0))
    resume(sessions, first, 1)
    assert sessions.create(OWNER, [part(0)], uses_topic_ids=False) is None
    monkeypatch.setattr(fetch_session, "PROTECT_S", 0)
    create(sessions, part(0))
    resume(sessions, first, 2)
    with pytest.raises(KafkaError):
        resume(sessions, second, 1)


def test_there_may_be_no_sessions_at_all() -> None:
    assert FetchSessions(0).create(OWNER, [part(0)], uses_topic_ids=False) is None


def test_a_session_belongs_to_its_host() -> None:
    sessions = FetchSessions(10)
    session = create(sessions, part(0))
    sessions.close("/10.0.0.2", session.session_id)
    with pytest.raises(KafkaError) as refused:
        resume(sessions, session, 1, owner="/10.0.0.2")
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert resume(sessions, session, 1) is session


def test_the_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay in memory, and one request may name a hundred thousand of them."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 3)
    sessions = FetchSessions(2)
    assert sessions.create(OWNER, map(part, range(7)), uses_topic_ids=False) is None
    first, second = create(sessions, *map(part, range(4))), create(sessions, part(0))
    resume(sessions, second, 1, part(1))
    with pytest.raises(KafkaError) as raised:
        resume(sessions, second, 2, part(2))
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.create(OWNER, map(part, range(3)), uses_topic_ids=False) is None
    resume(sessions, first, 1, forgotten=[("t", 0)])
    third = create(sessions, *map(part, range(3)))
    for each in (first, third):
        sessions.close(OWNER, each.session_id)
    create(sessions, *map(part, range(6)))


def test_several_old_sessions_make_room_for_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 2)
    monkeypatch.setattr(fetch_session, "PROTECT_S", 0)
    sessions = FetchSessions(3)
    small = [create(sessions, part(0), part(1)) for _ in range(3)]
    create(sessions, *map(part, range(4)))
    assert [sessions.find(OWNER, each.session_id) is None for each in small] == [True, True, False]


def test_old_sessions_make_room_for_one_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do for the new one that its client would begin with a full fetch."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 2)
    sessions = FetchSessions(3)
    old, growing, used = create(sessions, part(0), part(1)), create(sessions, part(0)), create(sessions, part(0))
    old.used_at = growing.used_at = float("-inf")
    grown = resume(sessions, growing, 1, *map(part, range(4)))
    assert grown is not None and len(grown.partitions) == 4
    assert sessions.find(OWNER, old.session_id) is None
    assert sessions.find(OWNER, used.session_id) is used
    create(sessions, part(0))  # there is room for one more partition


def test_a_session_that_outgrows_all_room_evicts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 2)
    monkeypatch.setattr(fetch_session, "PROTECT_S", 0)
    sessions = FetchSessions(2)
    other, growing = create(sessions, part(0)), create(sessions, part(0))
    with pytest.raises(KafkaError):
        resume(sessions, growing, 1, *map(part, range(5)))
    assert sessions.find(OWNER, other.session_id) is other


def test_names_count_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of topics that do not exist are kept, too: they are answered with an error until they exist."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 50)
    sessions, long = FetchSessions(2), "x" * 30_000  # as much as 100 partitions
    assert sessions.create(OWNER, [part(0, topic=long)], uses_topic_ids=False) is None
    half = "x" * 15_000
    first = create(sessions, part(0, topic=half), part(0))
    assert sessions.create(OWNER, [part(0, topic=half)], uses_topic_ids=False) is None
    with pytest.raises(KafkaError) as raised:
        resume(sessions, first, 1, part(1, topic=half))
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    second = create(sessions, part(0, topic=half), part(0))
    resume(sessions, second, 1, part(0, 5, topic=half))
    resume(sessions, second, 2, forgotten=[(half, 0)])
    create(sessions, part(0, topic=half))


def test_every_topic_that_can_exist_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_PER_SESSION", 2)
    sessions = FetchSessions(1)
    create(sessions, *(part(number, topic="x" * MAX_NAME_LENGTH) for number in range(2)))
    sessions = FetchSessions(1)
    by_id = (FetchedPartition(uuid.uuid4(), number, 0, 1_000, -1, -1) for number in range(2))
    assert sessions.create(OWNER, by_id, uses_topic_ids=True) is not None
