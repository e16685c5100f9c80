"""TLS for connections to Pulsar."""

import ssl

from gateway.pulsar.settings import PulsarSettings


def client_ssl_context(settings: PulsarSettings) -> ssl.SSLContext:
    """The context for brokers and the admin API. Raises OSError if the trusted certificates cannot be read."""
    context = ssl.create_default_context(cafile=settings.tls_trust_certs)
    context.check_hostname = settings.tls_verify_hostname and not settings.tls_allow_insecure
    if settings.tls_allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    return context
