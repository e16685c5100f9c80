"""An identity provider that gives everyone tokens, and the settings of Java clients that ask it."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator

from tests.support import jaas
from tests.support.gateway_process import HOST
from tests.support.tokens import Issuer

SHORT_TOKENS = {
    "sasl.login.refresh.min.period.seconds": "0", "sasl.login.refresh.buffer.seconds": "0",
    "sasl.login.refresh.window.factor": "0.5", "sasl.login.refresh.window.jitter": "0",
}  # fmt: skip
"""Java renews its token in the middle of its lifetime."""


def asking(url: str) -> dict[str, str]:
    """Java's settings: a file with a token would be read only once."""
    client = 'required clientId="any" clientSecret="any";'
    return {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": jaas.BEARER_CLIENT.replace("required;", client), "max.block.ms": "10000",
    }  # fmt: skip


@contextlib.contextmanager
def token_provider(issuer: Issuer, user: str, lifetime_s: float) -> Iterator[str]:
    """The URL of an identity provider that gives everyone a new token of the user."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            token = issuer.token(user, lifetime_s=lifetime_s, iat=int(time.time()), scope="kafka")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": token}).encode())

        def log_message(self, *_: object) -> None:
            """Not to the output of the tests."""

    with http.server.ThreadingHTTPServer((HOST, 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
