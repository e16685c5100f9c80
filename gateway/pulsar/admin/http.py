"""HTTP to Pulsar's admin API: login, redirects between brokers, retries, errors."""

import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from gateway.backoff import retried
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.settings import PulsarSettings
from gateway.pulsar.tls import client_ssl_context

_JSON = "application/json"
_REDIRECTS = frozenset({301, 302, 307, 308})
_UNEXPECTED = 500
_BUSY = frozenset({429, 502, 503, 504})
_REFUSED, _BETWEEN_OWNERS = 412, "find owner"
"""The error for a topic that is being unloaded and has no broker for a moment."""
_IN_USE = "active producers/subscriptions"
"""The error, with the same status, for a topic to be deleted that has clients. One that is deleted by force gets it if
a client comes meanwhile, or if a partition has no broker for a moment. Other partitions may be gone then."""
_IDEMPOTENT = frozenset({"GET", "HEAD"})
_MAX_REASON_CHARS = 500


class AdminError(PulsarError):
    """The admin API refused a request with an HTTP status, or could not be reached (status 0)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"admin API: {status} {reason}" if status else f"admin API: {reason}")
        self.status = status
        self.reason = reason
        self.between_owners = status == _REFUSED and _BETWEEN_OWNERS in reason
        self.in_use = status == _REFUSED and _IN_USE in reason
        self.retriable = status in {0, 500} or status in _BUSY or self.between_owners

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The resource exists already, or its state does not allow the request."""
        return self.status == 409


class Response(NamedTuple):
    headers: CIMultiDictProxy[str]
    body: bytes


class AdminHttp:
    """One keep-alive session for all brokers. Paths are relative to /admin/v2 and already percent-encoded."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._urls = settings.admin_urls()
        tls: ssl.SSLContext | bool = True
        if settings.admin_url.startswith("https"):
            tls = client_ssl_context(settings)
        connector = aiohttp.TCPConnector(limit=settings.max_admin_connections, ssl=tls)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        connect_s = settings.connect_timeout_ms / 1000
        # Reads have a shorter timeout than changes, because they can be retried: a broker can be too ill to answer.
        self._for_reads = aiohttp.ClientTimeout(settings.request_timeout_ms / 1000, sock_connect=connect_s)
        self._for_changes = aiohttp.ClientTimeout(settings.operation_timeout_ms / 1000, sock_connect=connect_s)

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        refusals: tuple[str, ...] = (),
    ) -> Response:
        """Send one request. Reads are retried with backoff while the brokers are unreachable or busy.

        Brokers answer some requests with status 500 although nothing is wrong: ``refusals`` are parts of the
        reasons that they give in such cases. Then no other broker is asked. Raises AdminError.
        """

        def try_again(error: Exception) -> bool:
            # Brokers return 500 for most errors that they did not expect, including permanent ones.
            return isinstance(error, AdminError) and error.status in _BUSY | {0} and method in _IDEMPOTENT

        return await retried(
            lambda: self._try_brokers(method, path, params, body, content_type, refusals),
            try_again,
            self._settings.backoff(),
            within_s=self._settings.operation_timeout_ms / 1000,
        )

    async def get_json(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """The decoded JSON body of a GET, None if it is empty. Raises AdminError."""
        response = await self.request("GET", path, params=params)
        if not response.body:
            return None
        try:
            return json.loads(response.body)
        except ValueError as error:
            raise AdminError(0, f"undecodable response: {error}") from None

    async def _try_brokers(
        self, method: str, path: str, params: Mapping[str, str] | None, body: object, content_type: str,
        refusals: tuple[str, ...],
    ) -> Response:
        """Try each admin address until one accepts the connection. If that one answers, it is the first next time."""
        failure: Exception | None = None
        for base in list(self._urls):
            try:
                response = await self._follow(method, f"{base}/admin/v2/{path}", params, body, content_type)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failure = error
                continue
            except AdminError as error:
                is_refusal = any(each in error.reason for each in refusals)
                if error.status != _UNEXPECTED or method not in _IDEMPOTENT or is_refusal:
                    raise
                # A broker that has lost its metadata session returns 500 for everything. Another broker may answer.
                failure = error
                self._ask_last(base)
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._ask_last(base)
                raise AdminError(0, f"{method} {path}: {str(error) or 'timed out'}") from error
            self._urls.remove(base)
            self._urls.insert(0, base)
            return response
        if isinstance(failure, AdminError):
            raise failure
        raise AdminError(0, f"{method} {path}: {failure}") from failure

    def _ask_last(self, base: str) -> None:
        self._urls.remove(base)
        self._urls.append(base)

    async def _follow(
        self, method: str, url: str, params: Mapping[str, str] | None, body: object, content_type: str
    ) -> Response:
        # Brokers redirect to the broker that serves the topic. Redirects are followed here to send the login again.
        for _ in range(self._settings.max_lookup_redirects + 1):
            async with self._session.request(
                method,
                URL(url, encoded=True),
                params=params,
                data=None if body is None else json.dumps(body).encode(),
                headers=self._headers(content_type),
                allow_redirects=False,
                timeout=self._for_reads if method in _IDEMPOTENT else self._for_changes,
            ) as response:
                if response.status in _REDIRECTS and "Location" in response.headers:
                    url, params = urljoin(url, response.headers["Location"]), None
                    continue
                content = await self._read(response)
                if response.status >= 400:
                    reason = _reason(content) or response.reason  # the response to a HEAD has no body
                    raise AdminError(response.status, f"{method} {urlsplit(url).path}: {reason}")
                return Response(response.headers, content)
        raise AdminError(0, f"{method} {urlsplit(url).path}: too many redirects")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._settings.max_admin_response_bytes
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise AdminError(0, f"response of more than {limit} bytes")
        return bytes(body)

    def _headers(self, content_type: str) -> dict[str, str]:
        # Most answers are small: to compress one takes a fifth of the broker's work for the request, and of this one's.
        headers = {"Content-Type": content_type, "Accept": _JSON, "Accept-Encoding": "identity"}
        token = self._settings.read_token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers


@lru_cache(maxsize=1024)
def quoted(segment: str) -> str:
    """A path segment, percent-encoded."""
    return quote(segment, safe="")


def _reason(body: bytes) -> str:
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, TypeError, KeyError):
        reason = body.decode(errors="replace")
    return str(reason)[:_MAX_REASON_CHARS]
