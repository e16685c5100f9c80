"""What the records of the security log make of each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pulsar.position import Position
from gateway.security.acls import Acl, Requester
from gateway.security.authorizer import AclAuthorizer
from gateway.security.records import (
    QuotaKey,
    Record,
    ScramKey,
    UnreadableRecordError,
    acl_record,
    quota_record,
    scram_record,
    secret_record,
)
from gateway.security.snapshots import Replay, encode_snapshot
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_forms import FormCounts, user_form

ANN = Requester("User:ann", "10.0.0.1")
ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "straße", "User:ann", "*", AclOperation.READ, Permission.ALLOW)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
DEFAULT_USER = frozenset({("user", None), ("client-id", "c")})

subjects = st.sampled_from(
    [
        acl_record(ACL, present=True),
        acl_record(ACL, present=False),
        acl_record(ACL._replace(name="b"), present=True),
        scram_record(ScramKey(ScramMechanism.SCRAM_SHA_256, "ann"), CREDENTIAL),
        scram_record(ScramKey(ScramMechanism.SCRAM_SHA_256, "ann"), None),
        scram_record(ScramKey(ScramMechanism.SCRAM_SHA_256, "ann"), CREDENTIAL._replace(iterations=8_192)),
        scram_record(ScramKey(ScramMechanism.SCRAM_SHA_256, "eve"), CREDENTIAL),
        scram_record(ScramKey(ScramMechanism.SCRAM_SHA_512, "ann"), CREDENTIAL),
        quota_record(QuotaKey(DEFAULT_USER, "producer_byte_rate"), 1.5),
        quota_record(QuotaKey(DEFAULT_USER, "producer_byte_rate"), None),
        quota_record(QuotaKey(DEFAULT_USER, "consumer_byte_rate"), 2.0),
        secret_record(b"first"),
        secret_record(b"second"),
        (b'["later","x"]', b'{"version": 7}'),
    ]
)


def state_of(records: list[Record]) -> SecurityState:
    state = SecurityState()
    for record in records:
        state.apply(record)
    state.complete()
    return state


def contents(state: SecurityState) -> tuple[object, ...]:
    return set(state.acls), state.scram, dict(state.forms.shares), state.quotas, state.secret, dict(state.records())


@given(st.lists(subjects), st.integers(0, 30))
def test_a_snapshot_and_what_follows_make_the_same_state(records: list[Record], at: int) -> None:
    """Also what others wrote between the entry of the snapshot and the snapshot itself."""
    behind = Position(3, at)
    snapshot = encode_snapshot(behind, state_of(records[:at]).records())
    replay = Replay(behind)
    replay.take(records[at : at + 2])
    replay.take([*snapshot])
    replay.take(records[at + 2 :])
    assert contents(state_of([*replay.records()])) == contents(state_of(records))
    assert [*Replay.changes(snapshot)] == []


@given(st.lists(subjects))
def test_the_forms_of_users_are_those_of_their_credentials(records: list[Record]) -> None:
    """Also of a user whose password changes, and who gets or loses one of two mechanisms."""
    state = state_of(records)
    forms = FormCounts()
    for user in {key.user for key in state.scram}:
        forms.add(user_form({key.mechanism: found for key, found in state.scram.items() if key.user == user}))
    assert state.forms.shares == forms.shares


@given(st.lists(subjects))
def test_a_state_can_be_cleared(records: list[Record]) -> None:
    state = state_of(records)
    state.clear()
    assert state.memory_bytes == 0 and contents(state) == (set(), {}, {}, {}, None, {})


def test_the_first_secret_counts() -> None:
    """Gateways that start at the same time each write one. Nobody may see another one than at another gateway."""
    state = state_of([secret_record(b"first"), secret_record(b"second")])
    assert state.secret == b"first" and dict(state.records()) == dict([secret_record(b"first")])


def test_a_large_snapshot_has_several_messages() -> None:
    records = [acl_record(ACL._replace(name=f"{number:0200}"), present=True) for number in range(6_000)]
    state = state_of(records)
    snapshot = encode_snapshot(Position(1, 1), state.records())
    assert len(snapshot) > 1
    replay = Replay(Position(1, 1))
    for message in reversed(snapshot):
        replay.take([message])
    assert contents(state_of([*replay.records()])) == contents(state)


def test_a_snapshot_keeps_bytes_that_are_not_text() -> None:
    """Of an unreadable record, which has to deny everything after the next start, too, and of a later version."""
    records: list[Record] = [*UNREADABLE[-4:-2], (b'["later","\xed\xa0\x80"]', b"\x00\xff\xfe")]
    state = state_of(records)
    replay = Replay(Position(1, 1))
    replay.take(encode_snapshot(Position(1, 1), state.records()))
    assert {*replay.records()} == {*records}
    assert not state_of([*replay.records()]).knows_all_acls


MALFORMED_PARTS = [
    (b'["snapshot",no JSON', b"[]"),
    (b'["snapshot",[1,1],0]', b"[]"),
    (b'["snapshot",7,0,1]', b"[]"),
    (b'["snapshot",[1,1],"0",1]', b"[]"),
    (b'["snapshot",[1,1],1,1]', b"[]"),
    (b'["snapshot",[1,1],0,"1"]', b"[]"),
    (b'["snapshot",[1,1],0,1]', b"no JSON"),
    (b'["snapshot",[1,1],0,1]', b"7"),
    (b'["snapshot",[1,1],0,1]', b"[[1,2]]"),
    (b'["snapshot",[1,1],0,1]', b'[["key"]]'),
    (b'["snapshot",[1,1],0,1]', b'[["key","\\ud800"]]'),
    (b'["snapshot",[1,1],0,1]', b"[" * 100_000),
]


@pytest.mark.parametrize(("key", "value"), MALFORMED_PARTS)
def test_a_malformed_part_of_a_snapshot_counts_as_missing(key: bytes, value: bytes) -> None:
    replay = Replay(Position(1, 1))
    replay.take([(key, value)])
    with pytest.raises(UnreadableRecordError):
        list(replay.records())
    replay.take(encode_snapshot(Position(1, 1), [(b"key", b"value")]))
    assert list(replay.records()) == [(b"key", b"value")]


UNREADABLE = [
    (b'["scram",1,["ann"]]', b'{"version":1,"salt":"","stored_key":"","server_key":"","iterations":4096}'),
    (b'["scram",1,null]', b'{"version":1,"salt":"","stored_key":"","server_key":"","iterations":4096}'),
    (b'["quota",{"user":"ann"},["producer_byte_rate"]]', b'{"version":1,"value":5}'),
    (b'["quota",{"user":7},"producer_byte_rate"]', b'{"version":1,"value":5}'),
    (b'["quota",{"user":"ann"},"producer_byte_rate"]', b'{"version":1,"value":1%s}' % (b"0" * 400)),
    (b'["acl",2,3,["orders"],"User:ann","*",3,2]', b'{"version":1}'),
    (b'["acl",2,3,"\\ud800","User:ann","*",3,2]', b'{"version":1}'),
    (b'["acl",2,3,"\xff","User:ann","*",3,2]', b'{"version":1}'),
    (b'["acl",2,3,"orders","User:ann","*",3,2]', b'{"version":1,"\xff"}'),
    (b'["acl",2,3,"orders","User:ann","*",3,2]', b"[" * 100_000),
    (
        b'["scram",1,"ann"]',
        b'{"version":1,"salt":"","stored_key":"","server_key":"","iterations":Infinity}',
    ),
]


@pytest.mark.parametrize("record", UNREADABLE)
def test_a_record_that_cannot_be_read_denies_everything(record: Record) -> None:
    state = state_of([record])
    assert not state.knows_all_acls
    assert (set(state.acls), state.scram, state.quotas) == (set(), {}, {})
    state.clear()
    assert state.knows_all_acls


def test_everything_is_denied_until_all_acls_are_known() -> None:
    state = SecurityState()
    authorizer = AclAuthorizer(state, ["User:root"], allow_everyone=True)

    def may_read(who: Requester = ANN) -> bool:
        return authorizer.allows(who, AclOperation.READ, ResourceType.TOPIC, "straße")

    state.apply(acl_record(ACL, present=True))
    assert not may_read()
    assert may_read(Requester("User:root", "10.0.0.1"))
    before = authorizer.version()
    state.complete()
    assert may_read() and authorizer.version() > before


def test_an_acl_that_cannot_be_read_denies_everything_while_it_is_there() -> None:
    state = state_of([acl_record(ACL, present=True)])
    authorizer = AclAuthorizer(state, [], allow_everyone=False)
    key, _ = acl_record(ACL._replace(permission=Permission.DENY), present=True)
    for value in (b'{"version": 2}', b"no JSON"):
        before = authorizer.version()
        state.apply((key, value))
        assert authorizer.version() > before
        assert not authorizer.allows(ANN, AclOperation.READ, ResourceType.TOPIC, "straße")
        state.apply((key, None))
        assert authorizer.allows(ANN, AclOperation.READ, ResourceType.TOPIC, "straße")
