"""Pulsar's admin API behind a proxy that can refuse or delay requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

TIMEOUT_S = 60.0
Verdict = Callable[[str, str], bool]
"""Method and path of a request → whether Pulsar gets it."""


class AdminProxy:
    """Refused requests are answered 503."""

    def __init__(self, admin_url: str) -> None:
        self._pulsar = urlsplit(admin_url).netloc
        self.passes: Verdict = lambda method, path: True
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if proxy.passes(self.command, self.path):
                    status, headers, content = proxy.forward(self.command, self.path, body, dict(self.headers.items()))
                else:
                    status, headers, content = 503, [], b'{"reason":"not now"}'
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._pulsar, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, headers | {"Host": self._pulsar})
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    @contextmanager
    def running(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
