"""An authority for development and tests, and the certificates that it signs, as PEM files."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

LIFETIME = datetime.timedelta(days=365)
CLOCKS_DIFFER = datetime.timedelta(days=2)
SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip
"""RFC 5280 demands it of an authority, and so does Python's ssl module since 3.13."""
STORE_PASSWORD = "store-password"
"""Password of the key and trust stores: Java expects stores to have one."""


class Issued(NamedTuple):
    certificate: Path
    key: Path

    @property
    def key_store(self) -> Path:
        """Certificate and key in one file (PKCS12), as Java reads them."""
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        path = self.key.with_suffix(".p12")
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        key = _load_key(self.key)
        write_secret(path, pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, encryption))
        return path


class Authority:
    """A certificate authority. If the folder has one of this name already, it is used again."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = folder / f"{name}.pem"
        """The certificate that clients and gateways trust."""
        key_file = self.certificate.with_suffix(".key")
        if key_file.exists() and self.certificate.exists():
            self._key = _load_key(key_file)
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(self._name, self._name, self._key).add_extension(constraints, critical=True)
        builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
        builder = builder.add_extension(self._identifier, critical=False)
        write_secret(key_file, _pem(self._key))
        self.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    @property
    def _identifier(self) -> x509.SubjectKeyIdentifier:
        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    @property
    def trust_store(self) -> Path:
        """The authority's certificate (PKCS12), as Java reads it."""
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        path = self.certificate.with_suffix(".p12")
        trusted = [pkcs12.PKCS12Certificate(certificate, b"authority")]
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(STORE_PASSWORD.encode())))
        return path

    def issue(self, name: str, *, hosts: Sequence[str] = (), unit: str | None = None) -> Issued:
        """A certificate for a server with these hosts, or for a client. The subject is CN=name[,OU=unit]."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [] if unit is None else [x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
        subject = x509.Name([*parts, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        write_secret(issued.key, _pem(key))
        issued.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return issued


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + LIFETIME)
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
