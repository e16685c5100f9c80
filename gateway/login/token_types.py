"""Tokens as the rest of the gateway knows them: what verifies them, and what they say."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class InvalidKey(Exception):
    """A key that cannot verify tokens."""


class TokenKey(NamedTuple):
    key: Any
    """In the form that PyJWT accepts."""
    algorithms: tuple[str, ...]
    """The algorithms for this kind of key. A token that names another algorithm is refused."""

    def __repr__(self) -> str:
        return f"TokenKey{self.algorithms}"


class TokenKeys(Protocol):
    async def find(self, key_id: str | None) -> TokenKey | None:
        """`key_id` is the token's `kid`."""

    async def close(self) -> None: ...


class TokenClaims(NamedTuple):
    role: str
    expires_s: float | None
    """Seconds since 1970; None if the token never expires."""
    cluster: str | None = None
    """`tenant/namespace`; None if the token names none."""


class Tokens(Protocol):
    async def verify(self, token: str) -> TokenClaims:
        """Raises LoginFailed, whose text contains nothing of the token."""
