"""Odd values in requests of client quotas, of users, and of logins."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.odd_values import Fields, Odd, check
from tests.conformance.security.test_security_apis import component, entry, op, upsertion, user

FOR_OTHERS = ("*.entity_name = *", "*.entity_type = *", "components = []", "*.match_type = *")
"""They would change quotas that other cases look for, or are about what these have set."""


def setting_quotas(conversation: Conversation) -> Fields:
    return {"entries": [entry({"user": user(conversation)}, op("producer_byte_rate", 1e9))], "validate_only": True}


def reading_quotas(conversation: Conversation) -> Fields:
    return {"components": [component("user", match=user(conversation))], "strict": False}


def upserting(conversation: Conversation) -> Fields:
    return {"deletions": [], "upsertions": [upsertion(user(conversation))]}


def deleting(conversation: Conversation) -> Fields:
    return {"deletions": [{"name": user(conversation), "mechanism": 1}], "upsertions": []}


ODD = {
    "AlterClientQuotas": Odd("AlterClientQuotas", 1, setting_quotas, ("validate_only = False",)),
    "DescribeClientQuotas": Odd("DescribeClientQuotas", 1, reading_quotas, FOR_OTHERS),
    "AlterUserScramCredentials": Odd("AlterUserScramCredentials", 0, upserting),
    "AlterUserScramCredentials-deletions": Odd("AlterUserScramCredentials", 0, deleting),
    "DescribeUserScramCredentials": Odd(
        "DescribeUserScramCredentials", 0, lambda c: {"users": [{"name": user(c)}]}, ("users = None", "users = []")
    ),
    "SaslHandshake": Odd("SaslHandshake", 1, lambda _: {"mechanism": "PLAIN"}),
    "SaslAuthenticate": Odd("SaslAuthenticate", 2, lambda _: {"auth_bytes": b"\0a\0b"}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values(pair: Pair, request: pytest.FixtureRequest, name: str) -> None:
    check(pair, request, ODD[name])
