"""Tokens (JWT) with which clients log in: Pulsar's own, or those of an identity provider.

Only imported if tokens are configured: PyJWT and cryptography take 8 MB.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from gateway.config.security import TokensSection
from gateway.login.token_types import InvalidKey, TokenClaims, TokenKey, TokenKeys
from protocol.sasl.failure import LoginFailed

MAX_TOKEN_BYTES = 64 * 1024
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_SECRET = {"HS256": 32, "HS384": 48, "HS512": 64}
"""By algorithm: the minimum size of its key, in bytes."""
_OF_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_UNREADABLE = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError, UnsupportedAlgorithm)


class TokenVerifier:
    def __init__(self, settings: TokensSection, keys: TokenKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str) -> TokenClaims:
        """Raises LoginFailed, whose text contains nothing of the token."""
        if len(token) > MAX_TOKEN_BYTES:
            raise LoginFailed("token too long")
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.find(key_id)
            if key is None:
                raise LoginFailed("token with an unknown key")
            return self._claims(self._decoded(token, key))
        except _UNREADABLE as error:
            raise LoginFailed(f"token: {type(error).__name__}") from None

    def _decoded(self, token: str, key: TokenKey) -> dict[str, Any]:
        audience, issuer = self._settings.audience, self._settings.issuer
        required = [name for name, wanted in (("aud", audience), ("iss", issuer)) if wanted is not None]
        return jwt.decode(
            token, key.key, algorithms=list(key.algorithms), audience=audience, issuer=issuer,
            options={"require": required, "verify_aud": audience is not None, "verify_iat": False, "verify_sub": False},
        )  # fmt: skip

    def _claims(self, claims: dict[str, Any]) -> TokenClaims:
        role = claims.get(self._settings.role_claim)
        if isinstance(role, list) and role:  # as in Pulsar, the first role counts
            role = role[0]
        if not _is_text(role) or not role:
            raise LoginFailed("token without a role")
        expires = claims.get("exp")
        cluster = claims.get(self._settings.cluster_claim or "")
        if cluster is not None and not _is_text(cluster):
            raise LoginFailed("token with an invalid cluster")
        return TokenClaims(role, None if expires is None else float(expires), cluster)


def _is_text(value: object) -> TypeGuard[str]:
    """JSON may contain halves of surrogate pairs, which cannot be encoded."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def public_key(data: bytes) -> TokenKey:
    """Read a key in PEM or DER. Raises InvalidKey."""
    try:
        key = load_pem_public_key(data) if data.lstrip().startswith(b"-----BEGIN") else load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidKey(f"not a public key: {error}") from None
    return asymmetric_key(key)


def asymmetric_key(key: Any) -> TokenKey:
    """Raises InvalidKey."""
    if isinstance(key, RSAPublicKey):
        return TokenKey(key, _OF_RSA)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _OF_CURVE:
        return TokenKey(key, (_OF_CURVE[key.curve.name],))
    raise InvalidKey("neither an RSA key nor one of the curves P-256, P-384 and P-521")


def secret_key(data: bytes) -> TokenKey:
    """Raises InvalidKey."""
    algorithms = tuple(name for name, min_bytes in _OF_SECRET.items() if len(data) >= min_bytes)
    if not algorithms:
        raise InvalidKey("a secret key of fewer than 32 bytes")
    return TokenKey(data, algorithms)
