"""The name in a certificate in Java's, and so Kafka's, format (RFC 2253), last part first: CN=alice,OU=eu,O=Acme.

Java escapes `=` and `#` at every position. An attribute without a name in RFC 2253 is written as its object identifier,
and its value as the hex of its DER: 1.2.840.113549.1.9.1=#1603612e62
"""

from __future__ import annotations

import re

from cryptography import x509
from cryptography.x509.oid import NameOID

_NAMED = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_SPECIAL = re.compile(r'([,=+<>#;"\\])')
_OUTER_SPACE = re.compile(r"\A[ \r]+|[ \r]+\Z")


def distinguished_name(certificate: bytes) -> str:
    """The name of the subject of a certificate in DER. Raises ValueError."""
    return name_text(x509.load_der_x509_certificate(certificate).subject)


def name_text(name: x509.Name) -> str:
    return ",".join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def common_name(name: str) -> str:
    """A distinguished name with only a common name, as load balancers send it."""
    return f"CN={_escaped(name)}"


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    named = _NAMED.get(attribute.oid)
    if named is None or isinstance(attribute.value, bytes):
        return f"{attribute.oid.dotted_string}=#{_value_der(attribute).hex()}"
    return f"{named}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value).replace("\0", r"\00")
    return _OUTER_SPACE.sub(lambda spaces: "".join(f"\\{each}" for each in spaces[0]), escaped)


def _value_der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """A name is a sequence of sets of sequences of an object identifier and a value."""
    pair = _content(_content(_content(x509.Name([attribute]).public_bytes())))
    return pair[2 + pair[1] :]


def _content(der: bytes) -> bytes:
    """The content after the tag and the length."""
    length = der[1]
    return der[2:] if length < 0x80 else der[2 + (length & 0x7F) :]
