"""The names in clients' certificates."""

from __future__ import annotations

from gateway.config.listeners import ListenerSection
from gateway.config.security import ANONYMOUS_NAME
from gateway.requests.context import ANONYMOUS, MAX_NAME_BYTES, Principal
from protocol.x509.principal_rules import parse_rules


class CertificateNames:
    """Maps a client's certificate to its principal. With SASL, the client is anonymous until it logs in."""

    def __init__(self, settings: ListenerSection) -> None:
        # Only listeners with TLS need cryptography, which takes 7 MB.
        from protocol.x509.distinguished_name import common_name, distinguished_name  # noqa: PLC0415

        self._common_name, self._distinguished_name = common_name, distinguished_name
        self._rules = None if settings.speaks_sasl else parse_rules(settings.principal_rules)
        self._required = settings.client_auth == "required"
        self._wanted = settings.client_auth != "none"

    def principal(self, certificate: bytes | None) -> Principal | None:
        """`certificate` is in DER. None: the client is refused."""
        return self._named(None if certificate is None else self._subject(certificate))

    def principal_at_proxy(self, name: str | None) -> Principal | None:
        """The same for the common name that a load balancer found in a verified certificate."""
        return self._named(None if name is None else self._common_name(name))

    def _named(self, distinguished_name: str | None) -> Principal | None:
        if not self._wanted or distinguished_name is None:
            return None if self._required else ANONYMOUS
        if self._rules is None:
            return ANONYMOUS
        name = self._rules.name(distinguished_name)
        if name is None or name == ANONYMOUS_NAME:  # a rule must not make the name of clients without a certificate
            return None
        principal = Principal(name=name)
        return None if principal.name_bytes > MAX_NAME_BYTES else principal

    def _subject(self, certificate: bytes) -> str | None:
        try:
            return self._distinguished_name(certificate)
        except ValueError:
            return None
