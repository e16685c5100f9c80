"""Incremental fetch sessions (KIP-227)."""

import pytest

from gateway.errors import KafkaError
from gateway.fetching import fetch_session
from gateway.fetching.fetch_session import MAX_EPOCH, FetchedPartition, FetchSessions
from protocol.kafka.errors import ErrorCode

OWNER = "/10.0.0.1"


def part(partition: int, offset: int = 0) -> FetchedPartition:
    return FetchedPartition("t", partition, offset, 1_000, -1, -1)


def test_a_session_keeps_what_is_not_named() -> None:
    sessions = FetchSessions(10)
    session = sessions.create(OWNER, [part(0), part(1), part(2)])
    assert session is not None
    resumed = sessions.resume(OWNER, session.session_id, 1, [part(1, 50), part(3)], [("t", 0), ("t", 9)])
    assert [(one.partition, one.offset) for one in resumed.partitions.values()] == [(1, 50), (2, 0), (3, 0)]


def test_what_was_answered_survives_an_update() -> None:
    sessions = FetchSessions(10)
    session = sessions.create(OWNER, [part(0)])
    assert session is not None
    session.partitions["t", 0].answered_watermark = 7
    assert sessions.resume(OWNER, session.session_id, 1, [part(0, 5)], []).partitions["t", 0].answered_watermark == 7


def test_epochs_rise_one_by_one_and_wrap_to_one() -> None:
    sessions = FetchSessions(10)
    session = sessions.create(OWNER, [part(0)])
    assert session is not None
    for epoch in (1, 2):
        sessions.resume(OWNER, session.session_id, epoch, [], [])
    for epoch in (1, 2, 4, -1):
        with pytest.raises(KafkaError) as raised:
            sessions.resume(OWNER, session.session_id, epoch, [], [])
        assert raised.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = MAX_EPOCH
    assert sessions.resume(OWNER, session.session_id, MAX_EPOCH, [], []).epoch == 1


def test_an_unknown_or_closed_session_is_refused() -> None:
    sessions = FetchSessions(10)
    session = sessions.create(OWNER, [part(0)])
    assert session is not None
    sessions.close(OWNER, session.session_id)
    sessions.close(OWNER, session.session_id)
    with pytest.raises(KafkaError) as raised:
        sessions.resume(OWNER, session.session_id, 1, [], [])
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_only_a_session_that_was_long_not_used_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = FetchSessions(2)
    first, second = sessions.create(OWNER, [part(0)]), sessions.create(OWNER, [part(0)])
    assert first is not None
    assert second is not None
    sessions.resume(OWNER, first.session_id, 1, [], [])
    assert sessions.create(OWNER, [part(0)]) is None
    monkeypatch.setattr(fetch_session, "PROTECT_S", 0)
    assert sessions.create(OWNER, [part(0)]) is not None
    sessions.resume(OWNER, first.session_id, 2, [], [])
    with pytest.raises(KafkaError):
        sessions.resume(OWNER, second.session_id, 1, [], [])


def test_there_may_be_no_sessions_at_all() -> None:
    assert FetchSessions(0).create(OWNER, [part(0)]) is None


def test_a_session_belongs_to_its_host() -> None:
    sessions = FetchSessions(10)
    session = sessions.create(OWNER, [part(0)])
    assert session is not None
    sessions.close("/10.0.0.2", session.session_id)
    with pytest.raises(KafkaError) as refused:
        sessions.resume("/10.0.0.2", session.session_id, 1, [], [])
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(OWNER, session.session_id, 1, [], []) is session
