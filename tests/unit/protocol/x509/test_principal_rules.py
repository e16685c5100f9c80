"""Kafka's rules for names in certificates: its own examples, and what its parser refuses."""

from __future__ import annotations

import pytest

from protocol.x509.distinguished_name import common_name
from protocol.x509.principal_rules import MalformedRule, parse_rules

# https://kafka.apache.org/39/documentation.html#security_authz_ssl
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("cn=test1,ou=x", "test1"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_documented_examples(name: str, principal: str) -> None:
    assert parse_rules(DOCUMENTED).name(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/U", "CN=abc", "ABC"),
        ("RULE:^CN=(.*)$/$1/", "OU=abc", None),
        (r"RULE:^CN=(.*)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(.*)$/$1@$2/", "CN=a", "a@$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=.*$/$0!/", "CN=a", "CN=a!"),
        (" RULE:^x$/y/ , DEFAULT ", "x", "y"),
    ],
)
def test_rules(rules: str, name: str, principal: str | None) -> None:
    assert parse_rules(rules).name(name) == principal


@pytest.mark.parametrize(
    "rules", ["", "default", "RULE:abc", "RULE:a/b", "DEFAULT x", "RULE:(/x/", "RULE:a/b/Z", "RULE:a/b/LU"]
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(MalformedRule):
        parse_rules(rules)


def test_a_common_name_cannot_pretend_to_be_more() -> None:
    assert common_name("a,OU=admins") == r"CN=a\,OU\=admins"
