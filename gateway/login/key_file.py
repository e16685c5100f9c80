"""Pulsar's key, which verifies every token. Its file is read again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.background import TaskGroup
from gateway.login.token_types import InvalidKey, TokenKey
from gateway.transport.watched_files import WatchedFiles

log = structlog.get_logger()


class KeyFile:
    def __init__(self, path: Path, parse: Callable[[bytes], TokenKey]) -> None:
        """Raises InvalidKey or OSError."""
        self._path = path
        self._parse = parse
        self._watched = WatchedFiles([path])
        self._key = self._read()
        self._tasks = TaskGroup()

    async def find(self, key_id: str | None) -> TokenKey | None:
        """The key does not depend on the token's key id."""
        return self._key

    def keep_fresh(self) -> None:
        self._tasks.keep_running("key of tokens", self._keep_fresh)

    async def close(self) -> None:
        await self._tasks.close()

    async def _keep_fresh(self) -> None:
        while True:
            await self._watched.next_change()
            await self._read_again()

    async def _read_again(self) -> None:
        """If the file cannot be used, the old key stays."""
        try:
            self._key = await asyncio.to_thread(self._read)
        except (OSError, InvalidKey) as error:
            self._watched.not_used()
            log.error("cannot use the new token key: keeping the old one", file=str(self._path), error=str(error))
        else:
            log.info("token key reloaded", file=str(self._path))

    def _read(self) -> TokenKey:
        return self._parse(self._path.read_bytes())
