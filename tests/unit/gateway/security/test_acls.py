"""Decisions by ACLs, compared with a model that checks every ACL as Kafka's documentation describes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.security.acls import Acl, AclFilter, Acls, Requester
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType

NAMES = ["a", "ab", "abc", "b", "*", "hardcode"]
PRINCIPALS = ["User:ann", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
OPERATIONS = [
    AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE,
]  # fmt: skip
acls = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
requesters = st.builds(Requester, st.sampled_from(PRINCIPALS[:2]), st.sampled_from(HOSTS[1:]))
asked_names = st.sampled_from(["a", "ab", "abcd", "b", "c", "*x"])
asked_operations = st.sampled_from([each for each in OPERATIONS if each is not AclOperation.ALL])


def covers(acl: Acl, resource_type: ResourceType, name: str) -> bool:
    if acl.resource_type is not resource_type:
        return False
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in {name, "*"}


IMPLIED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def concerns(acl: Acl, who: Requester, operation: AclOperation) -> bool:
    if acl.principal not in {who.principal, "User:*"} or acl.host not in {who.host, "*"}:
        return False
    wanted = {operation, AclOperation.ALL}
    return acl.operation in wanted | (IMPLIED.get(operation, set()) if acl.permission is Permission.ALLOW else set())


def model(all_acls: list[Acl], who: Requester, operation: AclOperation, kind: ResourceType, name: str) -> bool | None:
    covering = [acl for acl in all_acls if covers(acl, kind, name)]
    if not covering:
        return None
    permissions = {acl.permission for acl in covering if concerns(acl, who, operation)}
    return Permission.ALLOW in permissions and Permission.DENY not in permissions


@given(st.lists(acls, max_size=12), requesters, asked_operations, asked_names)
def test_decisions_are_those_of_a_model_that_looks_at_every_acl(
    all_acls: list[Acl], who: Requester, operation: AclOperation, name: str
) -> None:
    index = Acls(all_acls)
    assert index.decide(who, operation, ResourceType.TOPIC, name) is model(
        all_acls, who, operation, ResourceType.TOPIC, name
    )


@given(st.lists(st.tuples(st.booleans(), acls), max_size=30), requesters, asked_operations, asked_names)
def test_what_was_removed_decides_nothing(
    changes: list[tuple[bool, Acl]], who: Requester, operation: AclOperation, name: str
) -> None:
    index, present = Acls(), set[Acl]()
    for is_added, acl in changes:
        before = index.version
        (index.add if is_added else index.remove)(acl)
        (present.add if is_added else present.discard)(acl)
        assert index.version > before
    assert set(index) == present and len(index) == len(present)
    expected = model([*present], who, operation, ResourceType.GROUP, name)
    assert index.decide(who, operation, ResourceType.GROUP, name) is expected
    of_new = Acls(present)
    assert index.allows_any(who, operation, ResourceType.GROUP) is of_new.allows_any(who, operation, ResourceType.GROUP)


@given(st.lists(acls, max_size=8), requesters)
def test_allows_any_agrees_with_trying_names(all_acls: list[Acl], who: Requester) -> None:
    """`allows_any` against trying names: those that ACLs have, and longer ones."""
    index = Acls(all_acls)
    candidates = {acl.name + suffix for acl in all_acls for suffix in ("", "~")} | {"~"}
    allowed = any(index.decide(who, AclOperation.WRITE, ResourceType.TOPIC, name) for name in candidates if name != "*")
    assert index.allows_any(who, AclOperation.WRITE, ResourceType.TOPIC) is allowed or _literal_star(all_acls, who)


def _literal_star(all_acls: list[Acl], who: Requester) -> bool:
    """Kafka is inexact where `*` is allowed and other names are denied, and where a prefix is `*`: it permits."""
    return any(
        acl.name == "*" and acl.permission is Permission.ALLOW and concerns(acl, who, AclOperation.WRITE)
        for acl in all_acls
    )


def test_a_denial_beats_any_number_of_permissions() -> None:
    allow = Acl(ResourceType.TOPIC, PatternType.LITERAL, "*", "User:*", "*", AclOperation.ALL, Permission.ALLOW)
    deny = allow._replace(
        pattern=PatternType.PREFIXED, name="pay", principal="User:ann", operation=AclOperation.READ,
        permission=Permission.DENY,
    )  # fmt: skip
    index = Acls([allow, deny])
    ann, bob = Requester("User:ann", "10.0.0.1"), Requester("User:bob", "10.0.0.1")
    assert index.decide(ann, AclOperation.READ, ResourceType.TOPIC, "payments") is False
    assert index.decide(ann, AclOperation.WRITE, ResourceType.TOPIC, "payments") is True
    assert index.decide(ann, AclOperation.DESCRIBE, ResourceType.TOPIC, "payments") is True
    assert index.decide(bob, AclOperation.READ, ResourceType.TOPIC, "payments") is True


class CountedText(str):
    """Counts how often it is compared, hashed or cut."""

    __slots__ = ()
    steps = 0

    def _counting(name: str) -> Any:
        plain = getattr(str, name)

        def counted(self: str, *arguments: Any) -> Any:
            CountedText.steps += 1
            return plain(self, *arguments)

        return counted

    __eq__, __hash__, __lt__, __gt__ = (
        _counting("__eq__"),
        _counting("__hash__"),
        _counting("__lt__"),
        _counting("__gt__"),
    )
    __getitem__, startswith = _counting("__getitem__"), _counting("startswith")


MANY = 5_000
FEW_STEPS = 200
TO_WRITE = Acl(ResourceType.TOPIC, PatternType.LITERAL, "*", "User:*", "*", AclOperation.WRITE, Permission.ALLOW)
_OF_HOSTS = [TO_WRITE._replace(host=f"h{number}", permission=Permission.DENY) for number in range(MANY)]
_OF_LENGTHS = [TO_WRITE._replace(pattern=PatternType.PREFIXED, name="a" * number) for number in range(1, MANY)]
_OF_OPERATIONS = [
    TO_WRITE._replace(operation=operation, principal=f"User:{number}")
    for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    for number in range(MANY)
]


@pytest.mark.parametrize("many", [_OF_HOSTS, _OF_LENGTHS, _OF_OPERATIONS])
@pytest.mark.parametrize("name", ["a" * MANY, "b" * MANY])
def test_a_decision_takes_few_steps_with_many_acls(many: list[Acl], name: str) -> None:
    index, host = Acls([*many, TO_WRITE]), CountedText("10.0.0.1")
    CountedText.steps = 0
    assert index.decide(Requester("User:ann", host), AclOperation.WRITE, ResourceType.TOPIC, CountedText(name))
    assert CountedText.steps < FEW_STEPS


@pytest.mark.parametrize("is_denied", [True, False])
def test_allows_any_takes_few_steps_for_each_name_and_remembers_its_answer(is_denied: bool) -> None:
    names = [CountedText(f"{number}".ljust(2_000, "a")) for number in range(100)]
    pairs = [
        acl
        for name in names
        for acl in (
            TO_WRITE._replace(name=name),
            TO_WRITE._replace(pattern=PatternType.PREFIXED, name=name, permission=Permission.DENY),
        )
    ]
    more = TO_WRITE._replace(pattern=PatternType.PREFIXED, name="b")
    index = Acls(pairs if is_denied else [*pairs, more])
    asked = Requester("User:ann", "10.0.0.1"), AclOperation.WRITE, ResourceType.TOPIC
    CountedText.steps = 0
    assert index.allows_any(*asked) is not is_denied
    assert CountedText.steps < len(pairs) * FEW_STEPS
    CountedText.steps = 0
    assert index.allows_any(*asked) is not is_denied
    assert not CountedText.steps
    index.add(more)
    assert index.allows_any(*asked)
    index.remove(more)
    assert not index.allows_any(*asked)


ORDERS = Acl(ResourceType.TOPIC, PatternType.PREFIXED, "ord", "User:ann", "*", AclOperation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (PatternType.ANY, "ord", True), (PatternType.ANY, "orders", False), (PatternType.MATCH, "orders", True),
        (PatternType.MATCH, "or", False), (PatternType.LITERAL, "ord", False), (PatternType.PREFIXED, "ord", True),
        (PatternType.PREFIXED, "orders", False), (PatternType.ANY, None, True), (PatternType.LITERAL, None, False),
    ],
)  # fmt: skip
def test_filters_by_pattern(pattern: PatternType, name: str | None, matches: bool) -> None:
    wanted = AclFilter(ResourceType.ANY, pattern, name, None, None, AclOperation.ANY, Permission.ANY)
    assert wanted.matches(ORDERS) is matches
