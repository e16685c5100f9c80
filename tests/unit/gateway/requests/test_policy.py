"""The decisions that a connection remembers: they are bounded in bytes, because clients choose the names in them."""

from __future__ import annotations

import sys
from typing import cast

from gateway.requests.denials import DenialLog
from gateway.requests.policy import KNOWN_BYTES, MAX_KNOWN_CHARACTERS, Authorized
from gateway.security.acls import Requester
from gateway.security.authorizer import Authorizer
from protocol.kafka.acl import AclOperation, ResourceType

ALICE = Requester("User:alice", "192.0.2.7")


class Deciding:
    """Allows names that begin with a, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def version(self) -> int:
        return 0

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self.asked += 1
        return name.startswith("a")


def policy_of(authorizer: Deciding) -> Authorized:
    return Authorized(cast(Authorizer, authorizer), lambda: ALICE, DenialLog())


def may_read(policy: Authorized, name: str) -> bool:
    return policy.allows(AclOperation.READ, ResourceType.TOPIC, name)


def test_a_decision_is_made_once() -> None:
    authorizer = Deciding()
    policy = policy_of(authorizer)
    for _ in range(2):
        assert may_read(policy, "a".ljust(MAX_KNOWN_CHARACTERS, "x"))
        assert not may_read(policy, "b".ljust(MAX_KNOWN_CHARACTERS, "x"))
    assert authorizer.asked == 2


def test_longer_names_are_decided_each_time() -> None:
    authorizer = Deciding()
    policy = policy_of(authorizer)
    for _ in range(2):
        assert may_read(policy, "a".ljust(MAX_KNOWN_CHARACTERS + 1, "x"))
        assert not may_read(policy, "b".ljust(MAX_KNOWN_CHARACTERS + 1, "x"))
    assert authorizer.asked == 4 and not policy._known


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    policy = policy_of(Deciding())
    for letter in ("x", "\U0001f600"):  # a character takes one byte or four
        most = 0
        for number in range(2 * KNOWN_BYTES // MAX_KNOWN_CHARACTERS):
            may_read(policy, f"{number}".ljust(MAX_KNOWN_CHARACTERS, letter))
            most = max(most, len(policy._known))
        key = AclOperation.READ, ResourceType.TOPIC, letter * MAX_KNOWN_CHARACTERS
        assert most * (sys.getsizeof(key) + sys.getsizeof(key[-1])) <= KNOWN_BYTES


def test_many_usual_names_are_remembered() -> None:
    authorizer = Deciding()
    policy = policy_of(authorizer)
    for _ in range(2):
        for number in range(10_000):
            may_read(policy, f"accounting.invoices.of-the-region-{number}")
    assert authorizer.asked == 10_000
