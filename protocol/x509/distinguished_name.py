"""The name in a certificate, as Java and so Kafka writes it (RFC 2253), the last part first: CN=alice,OU=eu,O=Acme."""

from __future__ import annotations

from cryptography import x509


def distinguished_name(certificate: bytes) -> str:
    """Of the subject of a certificate in DER. Raises ValueError."""
    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()


def common_name(name: str) -> str:
    """A distinguished name of nothing but a common name, as load balancers tell it."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]).rfc4514_string()
