"""``kafka-gateway dev``: a Pulsar standalone, and the configuration of a gateway on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deploy.local.jars import ResolveError
from deploy.local.java import MissingToolError
from deploy.local.process import StartError
from deploy.local.secured import DEVELOPER, GATEWAY, LocalSecurity
from deploy.local.standalone import PulsarStandalone
from gateway.config.gateway_config import Config


class CannotStart(Exception):
    """Pulsar does not run here. The text has the reason."""


def develop(
    data: Path, sections: Mapping[str, dict[str, Any]], *, secure: bool, serve: Callable[[Config, str], None]
) -> None:
    """Start Pulsar, call ``serve`` with the gateway's configuration and a text for when it is ready, and stop Pulsar.

    ``data`` is the directory of everything that is kept. Raises CannotStart.
    """
    security = LocalSecurity(data / "secure") if secure else None
    pulsar = PulsarStandalone(data / "pulsar") if security is None else _secured_pulsar(data, security)
    try:
        pulsar.start()
        print(f"Starting Pulsar (log: {pulsar.log_path}) …", flush=True)
        pulsar.wait_ready()
        addresses = {"service_url": pulsar.service_url, "admin_url": pulsar.admin_url}
        whole: dict[str, Any] = {**sections, "pulsar": addresses}
        bootstrap = f"{whole['kafka']['host']}:{whole['kafka']['port']}"
        ready = f"Ready: Kafka bootstrap {bootstrap} · Pulsar {pulsar.service_url} {pulsar.admin_url}"
        if security is not None:
            _add_security(whole, security)
            ready += "\n" + security.write_clients(bootstrap)
        serve(Config.model_validate(whole), ready)
    except (MissingToolError, ResolveError, StartError) as error:
        raise CannotStart(str(error)) from error
    finally:
        pulsar.stop()


def _secured_pulsar(data: Path, security: LocalSecurity) -> PulsarStandalone:
    return PulsarStandalone(data / "pulsar", settings=security.pulsar_settings, token=security.token(GATEWAY))


def _add_security(sections: dict[str, Any], security: LocalSecurity) -> None:
    """Clients log in with tokens that are signed with Pulsar's key, and need ACLs."""
    issued = security.server_certificate(sections["kafka"]["host"])
    sections["kafka"] |= {
        "protocol": "SASL_SSL",
        "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        "tls": {"certificate": issued.certificate, "key": issued.key},
    }
    sections["pulsar"]["token"] = security.token(GATEWAY)
    sections["security"] = {"tokens": {"secret_key_file": security.key_file}}
    sections["authorization"] = {"authorizer": "acl", "super_users": [f"User:{DEVELOPER}"]}
