"""A Kafka client reduced to frames, as `raw_client`, for thousands of connections in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.raw_client import decode_response, encode_request

TIMEOUT_S = 60.0


class AsyncClient:
    """One connection, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send one request and return the body of its response. Raises TimeoutError, and IncompleteReadError or OSError
        if the server closes the connection."""
        frame = encode_request(api, version, fields)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return decode_response(api, version, await self._reader.readexactly(size))[1]


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[AsyncClient]:
    host, port = bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield AsyncClient(reader, writer)
    finally:
        writer.transport.abort()
