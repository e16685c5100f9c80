"""A Kafka client reduced to frames: any API in any version, and any bytes, over one blocking socket.

The tests use it where a real client library would hide the bytes: old versions, malformed frames, pipelining. Requests
and responses are dictionaries with the field names of Kafka's message schemas in snake case; kafka-python's codec
encodes and decodes them. A response must be decoded to its last byte.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl

from tests.support import consumer_group_messages

MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
    consumer_group_messages,
)
TIMEOUT_S = 60.0
MAX_FRAME_BYTES = 64 * 1024 * 1024
API_VERSIONS_KEY = 18
UNSUPPORTED_VERSION = 35


class ConnectionClosedError(Exception):
    """The server closed the connection instead of answering."""


class TrailingBytesError(Exception):
    """A response frame is longer than its version's schema says."""


def message_class(api: str, kind: str) -> Any:
    """The codec class of an API, for instance ("Fetch", "Request")."""
    for module in MODULES:
        found = getattr(module, api + kind, None)
        if found is not None:
            return found
    raise LookupError(f"no codec for {api}{kind}")


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool) -> bytes:
    """Request header v1, or v2 with no tagged fields when `flexible`."""
    header = struct.pack(">hhi", api_key, version, correlation_id)
    encoded = None if client_id is None else client_id.encode()
    header += struct.pack(">h", -1) if encoded is None else struct.pack(">h", len(encoded)) + encoded
    return header + b"\x00" if flexible else header


def encode_request(
    api: str, version: int, fields: dict[str, Any], *, correlation_id: int = 1, client_id: str | None = "raw"
) -> bytes:
    """One request without its length prefix."""
    request = message_class(api, "Request")
    flexible = request.flexible_version_q(version)
    header = request_header(request.API_KEY, version, correlation_id, client_id, flexible=flexible)
    return header + bytes(_message(request, version, fields).encode(version=version))


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
    """Correlation id and body of a response frame. Raises TrailingBytesError."""
    response = message_class(api, "Response")
    (correlation_id,) = struct.unpack_from(">i", frame)
    start = 4
    flexible = response.flexible_version_q(version)
    if response.API_KEY == API_VERSIONS_KEY:  # always header v0: the client does not know the server's versions yet
        if struct.unpack_from(">h", frame, start)[0] == UNSUPPORTED_VERSION:
            version, flexible = 0, False
    elif flexible:
        if frame[start] != 0:
            raise TrailingBytesError(f"{api} v{version}: unexpected tagged fields in the response header")
        start += 1
    decode = response._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response[None]
    )
    body, end = decode(memoryview(frame), start)
    if end != len(frame):
        raise TrailingBytesError(f"{api} v{version}: {len(frame) - end} bytes after the response")
    return correlation_id, body.to_dict(json=False)


def _message(target: Any, version: int, fields: dict[str, Any]) -> Any:
    schema = target._struct.fields
    values = {name: _value(schema[name], version, value) for name, value in fields.items()}
    return target(version=version, **values)


def _value(field: Any, version: int, value: Any) -> Any:
    if value is None or not (field.is_struct() or field.is_struct_array()):
        return value
    if field.is_struct():
        return _message(field.data_class, version, value)
    return [_message(field.data_class, version, item) for item in value]


class RawClient:
    """One connection. Every read ends within the timeout or raises TimeoutError."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = TIMEOUT_S,
        source: str | None = None,
        tls: tuple[ssl.SSLContext, str] | None = None,
    ) -> None:
        """`source` is the address to connect from, if it matters. `tls` includes the host name to verify."""
        host, _, port = bootstrap.rpartition(":")
        bound = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=bound)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls[0].wrap_socket(self._socket, server_hostname=tls[1])
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Close without waiting for anything that was sent or is to be received (RST)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def call(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send one request and return the body of its response."""
        return self.receive(api, version, self.send(api, version, **fields))

    def send(self, api: str, version: int, **fields: Any) -> int:
        """Send one request and return its correlation id."""
        self._correlation_id += 1
        self.send_frame(encode_request(api, version, fields, correlation_id=self._correlation_id))
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> dict[str, Any]:
        """Read the next response, which must be the one to `correlation_id`."""
        found, body = decode_response(api, version, self.read_frame())
        if found != correlation_id:
            raise AssertionError(f"response to request {found} came before the one to {correlation_id}")
        return body

    def send_frame(self, payload: bytes) -> None:
        """Send a payload with its length in front."""
        self.send_raw(struct.pack(">i", len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are. If the server has closed the connection already, the next read shows it."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def finish_sending(self) -> None:
        """Close the sending half: the server reads the end of the stream."""
        self._socket.shutdown(socket.SHUT_WR)

    def read_frame(self) -> bytes:
        """The next frame without its length. Raises ConnectionClosedError."""
        (size,) = struct.unpack(">i", self._read_exactly(4))
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise AssertionError(f"a response frame says it is {size} bytes long")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            try:
                chunk = self._socket.recv(size - len(chunks))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise ConnectionClosedError(f"closed after {len(chunks)} of {size} bytes")
            chunks += chunk
        return bytes(chunks)


@contextmanager
def connected(
    bootstrap: str, *, timeout_s: float = TIMEOUT_S, tls: tuple[ssl.SSLContext, str] | None = None
) -> Iterator[RawClient]:
    client = RawClient(bootstrap, timeout_s=timeout_s, tls=tls)
    try:
        yield client
    finally:
        client.close()
