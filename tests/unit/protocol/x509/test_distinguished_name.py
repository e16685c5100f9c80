"""Names as Java writes them: the expected values are those of `X500Principal.getName()` of Java 17."""

from __future__ import annotations

import pytest
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from protocol.x509.distinguished_name import common_name, name_text


def test_the_last_part_comes_first() -> None:
    parts = [
        (NameOID.COUNTRY_NAME, "DE"), (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"), (NameOID.LOCALITY_NAME, "M"),
        (NameOID.ORGANIZATION_NAME, "Acme"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "eu"),
        (NameOID.STREET_ADDRESS, "s 1"), (NameOID.DOMAIN_COMPONENT, "acme"), (NameOID.USER_ID, "u1"),
        (NameOID.COMMON_NAME, "alice"),
    ]  # fmt: skip
    name = Name([NameAttribute(kind, value) for kind, value in parts])
    assert name_text(name) == "CN=alice,UID=u1,DC=acme,STREET=s 1,OU=eu,O=Acme,L=M,ST=Bayern,C=DE"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('A, "B" + <C>; \\ #', r"CN=A\, \"B\" \+ \<C\>\; \\ \#"),
        ("#x ", r"CN=\#x\ "),
        ("a=b", r"CN=a\=b"),
        ("  a  ", r"CN=\ \ a\ \ "),
        (" \r a \r", "CN=\\ \\\r\\ a\\ \\\r"),
        ("   ", r"CN=\ \ \ "),
        ("a\\ ", r"CN=a\\\ "),
        ("a \n", "CN=a \n"),
        ("a\0b", r"CN=a\00b"),
        ("two  spaces\té", "CN=two  spaces\té"),
    ],
)
def test_what_is_escaped(value: str, text: str) -> None:
    assert name_text(Name([NameAttribute(NameOID.COMMON_NAME, value)])) == text == common_name(value)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (NameOID.EMAIL_ADDRESS, "a@b.c", "1.2.840.113549.1.9.1=#16056140622e63"),
        (NameOID.GIVEN_NAME, "G", "2.5.4.42=#0c0147"),
        (NameOID.SERIAL_NUMBER, "77", "2.5.4.5=#13023737"),
        (NameOID.EMAIL_ADDRESS, "x" * 204, "1.2.840.113549.1.9.1=#1681cc" + "78" * 204),
    ],
)
def test_what_has_no_name(kind: object, value: str, text: str) -> None:
    assert name_text(Name([NameAttribute(kind, value)])) == text  # type: ignore[arg-type]


def test_a_part_of_two() -> None:
    both = RelativeDistinguishedName(
        [NameAttribute(NameOID.COMMON_NAME, "a"), NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b")]
    )
    assert name_text(Name([RelativeDistinguishedName([NameAttribute(NameOID.COUNTRY_NAME, "DE")]), both])) in {
        "CN=a+OU=b,C=DE", "OU=b+CN=a,C=DE",
    }  # fmt: skip


def test_load_balancers_may_tell_longer_names() -> None:
    """X.509 has a limit of 64, which not every authority respects."""
    assert common_name("a" * 100) == "CN=" + "a" * 100
