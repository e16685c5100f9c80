"""The gateway's certificates, which are renewed without a restart."""

from __future__ import annotations

import asyncio
import ssl
from typing import Literal

import structlog

from gateway.config.listeners import TlsSection
from gateway.observability.metrics import Metrics
from gateway.transport.watched_files import WatchedFiles

ClientAuth = Literal["none", "requested", "required"]
_VERIFY: dict[ClientAuth, ssl.VerifyMode] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

log = structlog.get_logger()


class InvalidCertificate(Exception):
    """Files that cannot be used for TLS; the text names them."""


class AcceptedTls(ssl.SSLObject):
    """TLS of one client's connection."""

    server_name: str | None = None
    """The host name that the client requested (SNI)."""


class Certificates:
    """The certificates of a listener, or of connections to other gateways.

    New connections use `current`; open connections are not changed.
    """

    def __init__(
        self, listener: str, settings: TlsSection, client_auth: ClientAuth | None, metrics: Metrics
    ) -> None:
        """Without `client_auth`, the files are for connections that the gateway opens. Raises InvalidCertificate."""
        self._listener = listener
        self._settings = settings
        self._client_auth = client_auth
        self._metrics = metrics
        paths = (settings.certificate, settings.key, settings.authorities)
        self._files = WatchedFiles([path for path in paths if path is not None])
        self.current = self._load()

    async def keep_fresh(self) -> None:
        while True:
            await self._files.next_change()
            await self._load_again()

    async def renew(self) -> None:
        """Load the files again if they have changed."""
        if await self._files.have_changed():
            await self._load_again()

    async def _load_again(self) -> None:
        """A failure is logged and counted; the next attempt is after the next change, or after RETRY_S."""
        try:
            self.current = await asyncio.to_thread(self._load)
        except InvalidCertificate as error:
            self._files.not_used()
            self._metrics.certificate_failures.labels(self._listener).inc()
            log.error("cannot use new certificates: keeping the old ones", listener=self._listener, error=str(error))
        else:
            log.info("certificates renewed", listener=self._listener)

    def _load(self) -> ssl.SSLContext:
        context = _connecting() if self._client_auth is None else _accepting(self._client_auth)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        settings = self._settings
        try:
            context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
            if settings.authorities is not None:
                context.load_verify_locations(settings.authorities)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            names = ", ".join(map(str, self._files.paths))
            raise InvalidCertificate(f"{names}: {error.strerror if isinstance(error, OSError) else error}") from None
        return context


def _accepting(client_auth: ClientAuth) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AcceptedTls
    context.sni_callback = _note_server_name
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY[client_auth]
    return context


def _connecting() -> ssl.SSLContext:
    """The code that connects checks the name in the peer's certificate itself: hosts of gateways come and go."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return context


def _note_server_name(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    if isinstance(tls, AcceptedTls):
        tls.server_name = name


def _no_password() -> str:
    """Without this function, OpenSSL would ask for the password on the terminal."""
    raise ValueError("the key has a password")
