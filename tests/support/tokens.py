"""Tokens as Pulsar issues them, and keys in Pulsar's formats."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.login.token_types import TokenKey


class Issuer:
    """Signs with an RSA key; the public key is a file in DER, as `pulsar tokens create-key-pair` writes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.key = rsa.generate_private_key(65_537, 2_048)
        self.public_key_file = folder / "token-public.der"
        public = self.key.public_key()
        self.public_key_file.write_bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def token(self, role: str, *, lifetime_s: float | None = 3_600, **claims: Any) -> str:
        expires = {} if lifetime_s is None else {"exp": int(time.time() + lifetime_s)}
        return jwt.encode({"sub": role} | expires | claims, self.key, algorithm="RS256")


class OneKey:
    """Finds the same key for every token."""

    def __init__(self, key: TokenKey) -> None:
        self._key = key

    async def find(self, key_id: str | None) -> TokenKey:
        return self._key

    async def close(self) -> None:
        """There is nothing to close."""
