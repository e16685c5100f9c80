"""JSON Web Key Sets from a file or a URL: the public keys of an identity provider, which change from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import structlog

from gateway.background import TaskGroup
from gateway.config.security import TokensSection
from gateway.login.key_file import KeyFile
from gateway.login.token_types import InvalidKey, TokenKey, TokenKeys
from gateway.login.tokens import asymmetric_key, public_key, secret_key
from gateway.transport.watched_files import WatchedFiles

REFRESH_S = 300.0
ASK_AGAIN_S = 10.0
"""Minimum time between two reads that tokens with unknown keys cause."""
FETCH_TIMEOUT_S = 5.0
MAX_SET_BYTES = 1024 * 1024

log = structlog.get_logger()


async def token_keys(settings: TokensSection) -> TokenKeys:
    """Return the configured keys. Raises InvalidKey or OSError if a file cannot be used."""
    if settings.public_key_file is not None:
        return _followed(KeyFile(settings.public_key_file, public_key))
    if settings.secret_key_file is not None:
        return _followed(KeyFile(settings.secret_key_file, secret_key))
    if settings.jwks_file is not None:
        watched = WatchedFiles([settings.jwks_file])
        keys = KeySet(str(settings.jwks_file), _reader(settings.jwks_file), watched)
        await keys.read()
    else:
        assert settings.jwks_url is not None
        keys = KeySet(settings.jwks_url, _fetcher(settings.jwks_url))
        await keys.try_to_read()
    return _followed(keys)


def _followed(keys: KeyFile | KeySet) -> TokenKeys:
    keys.keep_fresh()
    return keys


class KeySet:
    def __init__(
        self, source: str, read: Callable[[], Awaitable[bytes]], watched: WatchedFiles | None = None
    ) -> None:
        """The set is read again when the `watched` file changes; without a file, at regular intervals."""
        self._source = source
        self._watched = watched
        self._read = read
        self._keys: dict[str | None, TokenKey] = {}
        self._reading: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Reads take turns: an older one would bring back a key that was removed."""
        self._asked_s = -ASK_AGAIN_S
        self._tasks = TaskGroup()

    async def find(self, key_id: str | None) -> TokenKey | None:
        if key_id not in self._keys and not (key_id is None and len(self._keys) == 1):
            await self._ask_again()
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def read(self) -> None:
        """Raises OSError or InvalidKey."""
        async with self._turn:
            self._asked_s = time.monotonic()
            keys = parse_key_set(await self._read())
            if keys.keys() != self._keys.keys():
                log.info("token keys loaded", source=self._source, key_ids=[str(key_id) for key_id in keys])
            self._keys = keys

    async def try_to_read(self) -> None:
        """If the set cannot be read, the old keys stay."""
        try:
            await self.read()
        except (OSError, InvalidKey, aiohttp.ClientError) as error:
            if self._watched is not None:
                self._watched.not_used()
            log.warning("cannot read token keys", source=self._source, error=str(error) or type(error).__name__)

    def keep_fresh(self) -> None:
        self._tasks.keep_running("keys of tokens", self._keep_fresh)

    async def close(self) -> None:
        await self._tasks.close()

    async def _keep_fresh(self) -> None:
        while True:
            if self._watched is None:
                await asyncio.sleep(REFRESH_S)
            else:
                await self._watched.next_change()
            await self.try_to_read()

    async def _ask_again(self) -> None:
        """All callers share one read. A caller that is cancelled does not cancel the read."""
        if self._reading is None or self._reading.done():
            if time.monotonic() - self._asked_s < ASK_AGAIN_S:
                return
            self._reading = asyncio.create_task(self.try_to_read())
        await asyncio.shield(self._reading)


def parse_key_set(data: bytes) -> dict[str | None, TokenKey]:
    """The keys by key id. Keys that cannot verify tokens are left out (RFC 7517, 5). Raises InvalidKey."""
    try:
        rows = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidKey(f"not a JSON Web Key Set: {type(error).__name__}") from None
    found: dict[str | None, TokenKey] = {}
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(InvalidKey):
            key_id, key = _named_key(row)
            found[key_id] = key
    if not found:
        raise InvalidKey("a JSON Web Key Set without a key to check tokens with")
    return found


def _named_key(row: Any) -> tuple[str | None, TokenKey]:
    """Raises InvalidKey."""
    if not isinstance(row, dict) or str(row.get("kty")) not in {"RSA", "EC"} or "d" in row:
        raise InvalidKey("not a public key")
    if row.get("use", "sig") != "sig":
        raise InvalidKey("a key that is not for signatures")
    key_id, named = row.get("kid"), row.get("alg")
    if not isinstance(key_id, str | None):
        raise InvalidKey("a key whose id is not a string")
    try:
        of_kind = asymmetric_key(jwt.PyJWK.from_dict({name: row[name] for name in row if name != "alg"}).key)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise InvalidKey(f"not a key: {type(error).__name__}") from None
    if named is None:
        return key_id, of_kind
    if named not in of_kind.algorithms:
        raise InvalidKey(f"a key whose algorithm is {named}")
    return key_id, TokenKey(of_kind.key, (named,))


def _reader(path: Path) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        return await asyncio.to_thread(path.read_bytes)

    return read


def _fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise InvalidKey(f"status {answer.status}")
                data = await answer.content.read(MAX_SET_BYTES + 1)
                while len(data) <= MAX_SET_BYTES and (more := await answer.content.read(MAX_SET_BYTES)):
                    data += more
        except TimeoutError:
            raise InvalidKey("no answer in time") from None
        if len(data) > MAX_SET_BYTES:
            raise InvalidKey(f"more than {MAX_SET_BYTES} bytes")
        return data

    return fetch
