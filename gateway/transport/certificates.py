"""The gateway's certificates, which are renewed without a restart."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Literal

import structlog

from gateway.listener_config import TlsSection
from gateway.observability.metrics import Metrics

LOOK_S = 2.0
"""How often the files are looked at."""
ClientAuth = Literal["none", "requested", "required"]
_VERIFY: dict[ClientAuth, ssl.VerifyMode] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

log = structlog.get_logger()


class UnfitCertificate(Exception):
    """Files with which no TLS can be spoken; the text names them."""


class AcceptedTls(ssl.SSLObject):
    """TLS of one client."""

    server_name: str | None = None
    """The host name that it asked for (SNI)."""


class Certificates:
    """A listener's, or those of connections to other gateways.

    New connections get `current`; those that are open stay as they are.
    """

    def __init__(
        self, listener: str, settings: TlsSection, client_auth: ClientAuth | None, metrics: Metrics
    ) -> None:
        """Without `client_auth` they are for connections that the gateway opens. Raises UnfitCertificate."""
        self._listener = listener
        self._settings = settings
        self._client_auth = client_auth
        self._metrics = metrics
        self._seen = self._look()
        self.current = self._load()

    async def keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.renew()

    async def renew(self) -> None:
        """If the files have changed. What cannot be used is told, and looked at again when it changes."""
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.current = await asyncio.to_thread(self._load)
        except UnfitCertificate as error:
            self._metrics.certificate_failures.labels(self._listener).inc()
            log.error("new certificates cannot be used: the old ones stay", listener=self._listener, error=str(error))
        else:
            log.info("certificates renewed", listener=self._listener)

    def _files(self) -> list[Path]:
        settings = self._settings
        return [path for path in (settings.certificate, settings.key, settings.authorities) if path is not None]

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells whether a file is the same: also one that a link now leads to."""
        return [_fingerprint(path) for path in self._files()]

    def _load(self) -> ssl.SSLContext:
        context = _connecting() if self._client_auth is None else _accepting(self._client_auth)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        settings = self._settings
        try:
            context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
            if settings.authorities is not None:
                context.load_verify_locations(settings.authorities)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            names = ", ".join(map(str, self._files()))
            raise UnfitCertificate(f"{names}: {error.strerror if isinstance(error, OSError) else error}") from None
        return context


def _accepting(client_auth: ClientAuth) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AcceptedTls
    context.sni_callback = _note_server_name
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY[client_auth]
    return context


def _connecting() -> ssl.SSLContext:
    """Whoever connects looks at the name in the certificate himself: hosts of gateways come and go."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return context


def _fingerprint(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _note_server_name(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    if isinstance(tls, AcceptedTls):
        tls.server_name = name


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a password")
