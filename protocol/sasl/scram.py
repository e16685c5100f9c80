"""SASL SCRAM-SHA-256 and -512 (RFC 5802, 7677), the server's side, without channel binding.

    client first   gs2 header, `n=` user, `r=` nonce [, extensions]          n,,n=alice,r=fyko
    server first   `r=` both nonces, `s=` salt, `i=` iterations              r=fyko3rfc,s=QSXC…,i=4096
    client final   `c=` gs2 header, `r=` both nonces, `p=` proof             c=biws,r=fyko3rfc,p=v0X8…
    server final   `v=` signature                                            v=rmF9…

The server does not store the password, but keys that verify it: StoredKey = H(HMAC(salted, "Client Key")), and
ServerKey = HMAC(salted, "Server Key").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum
from typing import NamedTuple

from protocol.sasl.failure import LoginFailed

MIN_ITERATIONS, MAX_ITERATIONS = 4_096, 16_384
"""Kafka's limits."""
MAX_MESSAGE_BYTES = 4_096
"""The limit for messages of a client. The first is kept until the last has come, and its sender is not known yet."""
FOREIGN_ID = "Authentication failed: Client requested an authorization id that is different from username"

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_USER = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|[\x80-\U0010ffff]|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_USER}))?,)"
    rf"(?P<bare>n=(?P<user>{_USER}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class ScramMechanism(Enum):
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredential(NamedTuple):
    """The stored data of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def credential_of(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Takes 2 to 16 ms without the GIL: call it in a thread."""
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """From the data in AlterUserScramCredentials, for which the client has done the slow part."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", mechanism.digest), iterations)


class ScramServer:
    """One login. Call `first`, `challenge` and `final` once each, in this order."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        """`nonce`: printable, without a comma, and never used before."""
        self._mechanism = mechanism
        self._server_nonce = nonce
        self._header = self._client_first = self._server_first = self._nonce = ""
        self._credential: ScramCredential | None = None

    def first(self, message: bytes) -> str:
        """The user who wants to log in. Raises LoginFailed."""
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise LoginFailed("client first message of an unknown form")
        user = _unescaped(found["user"])
        if found["authorization"] is not None and _unescaped(found["authorization"]) != user:
            raise LoginFailed("authorization id of another user", FOREIGN_ID)
        self._header, self._client_first = found["header"], found["bare"]
        self._nonce = found["nonce"] + self._server_nonce
        return user

    def challenge(self, credential: ScramCredential) -> bytes:
        """The server's first message."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """The server's final message: the client has proved that it knows the password. Raises LoginFailed."""
        credential, digest = self._credential, self._mechanism.digest
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if found is None or credential is None:
            raise LoginFailed("client final message of an unknown form")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise LoginFailed("wrong nonce")
        if _decoded(found["channel"]) != self._header.encode():
            raise LoginFailed("gs2 header differs from the first message's")
        signed = f"{self._client_first},{self._server_first},{found['unproved']}".encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        proof = _decoded(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        proved = hashlib.new(digest, client_key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(proved, credential.stored_key):
            raise LoginFailed("wrong proof")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginFailed("message too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed("message that is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed("message with bad base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
