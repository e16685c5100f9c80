"""Reads the configuration file of a client (`--command-config` of Kafka's tools, librdkafka) for kafka-python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""Other settings are ignored."""
_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
_JAAS_OPTION = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_PEM = "PEM"


class InvalidProperties(Exception):
    """The file cannot be used. The text has the reason, without secrets."""


def read_client_properties(path: Path) -> dict[str, Any]:
    """The arguments of kafka-python's clients. Raises InvalidProperties."""
    try:
        found = _parsed(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProperties(f"{path}: {error.strerror if isinstance(error, OSError) else 'not a text'}") from None
    for kind in ("ssl.truststore", "ssl.keystore"):
        if f"{kind}.location" in found and found.get(f"{kind}.type", "JKS").upper() != _PEM:
            raise InvalidProperties(f"{path}: {kind} must be of type PEM")
    arguments: dict[str, Any] = {to: found[name] for name, to in _NAMES.items() if name in found}
    if "ssl.keystore.location" in found:
        arguments["ssl_certfile"] = arguments["ssl_keyfile"] = found["ssl.keystore.location"]
    for option, value in _JAAS_OPTION.findall(found.get("sasl.jaas.config", "")):
        arguments[f"sasl_plain_{option}"] = re.sub(r"\\(.)", r"\1", value)
    if found.get("ssl.endpoint.identification.algorithm", "https").lower() in {"", "none"}:
        arguments["ssl_check_hostname"] = False
    if arguments.get("sasl_mechanism", "PLAIN") not in _MECHANISMS:
        raise InvalidProperties(f"{path}: sasl.mechanism must be one of {', '.join(sorted(_MECHANISMS))}")
    return arguments


def _parsed(text: str) -> dict[str, str]:
    """The properties of a file in Java's format; a backslash continues a line."""
    lines = (line.strip() for line in re.sub(r"\\\r?\n\s*", "", text).splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}
