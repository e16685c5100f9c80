"""TLS towards clients: the gateway's certificates, which are renewed without a restart, and the names in theirs."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog

from gateway.listener_config import ListenerSection, TlsSection
from gateway.observability.metrics import Metrics
from gateway.requests.context import ANONYMOUS, Principal
from protocol.x509.distinguished_name import common_name, distinguished_name
from protocol.x509.principal_rules import parse_rules

LOOK_S = 2.0
"""How often the files are looked at."""
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

log = structlog.get_logger()


class UnfitCertificate(Exception):
    """Files with which no TLS can be spoken; the text names them."""


class ClientTls(ssl.SSLObject):
    """TLS of one client."""

    server_name: str | None = None
    """The host name that it asked for (SNI)."""


class Certificates:
    """A listener's. New connections get `current`; those that are open stay as they are."""

    def __init__(self, listener: str, settings: TlsSection, client_auth: str, metrics: Metrics) -> None:
        """Raises UnfitCertificate."""
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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslobject_class = ClientTls
        context.sni_callback = _note_server_name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        settings = self._settings
        try:
            context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
            if settings.authorities is not None:
                context.load_verify_locations(settings.authorities)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            names = ", ".join(map(str, self._files()))
            raise UnfitCertificate(f"{names}: {error.strerror if isinstance(error, OSError) else error}") from None
        context.verify_mode = _VERIFY[self._client_auth]
        return context


class CertificateNames:
    """From a client's certificate to its principal. Who logs in with SASL is named there, and is nobody before."""

    def __init__(self, settings: ListenerSection) -> None:
        self._rules = None if settings.speaks_sasl else parse_rules(settings.principal_rules)
        self._required = settings.client_auth == "required"
        self._wanted = settings.client_auth != "none"

    def principal(self, certificate: bytes | None) -> Principal | None:
        """`certificate` in DER. None: the client is not let in."""
        return self._named(None if certificate is None else _subject(certificate))

    def principal_at_proxy(self, name: str | None) -> Principal | None:
        """The same of the common name that a load balancer has found in a verified certificate."""
        return self._named(None if name is None else common_name(name))

    def _named(self, distinguished_name: str | None) -> Principal | None:
        if not self._wanted or distinguished_name is None:
            return None if self._required else ANONYMOUS
        if self._rules is None:
            return ANONYMOUS
        name = self._rules.name(distinguished_name)
        return None if name is None else Principal(name=name)


def _subject(certificate: bytes) -> str | None:
    try:
        return distinguished_name(certificate)
    except ValueError:
        return None


def _fingerprint(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _note_server_name(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    if isinstance(tls, ClientTls):
        tls.server_name = name


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a password")
