"""The name of the Pulsar subscription that mirrors a Kafka group.

A subscription has the group's name. Characters that Pulsar, its REST paths or ZooKeeper do not accept are written
``~XX``, a byte of UTF-8 in hexadecimal: all except ASCII letters, digits and ``. _ - : @ =``. Pulsar decodes names
in REST paths twice, so ``%`` and ``+`` would name another subscription. It reserves ``pulsar.…`` and
``__compaction``, and does not accept empty names. Different groups have different names: ``~`` itself is written
``~7E``, and a name that is too long ends in ``~~`` and a hash.
"""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 250
"""As for topics. A longer name must also fit into a URL."""
_HASH_CHARS = 32
_UNSAFE = re.compile(r"[^a-zA-Z0-9._:@=-]")
_RESERVED = re.compile(r"pulsar\.|__compaction$|\.\.?$")


def subscription_name(group_id: str) -> str:
    if not group_id:
        return "~"
    name = _UNSAFE.sub(_escaped, group_id)
    if _RESERVED.match(name):
        name = _escape(name[0]) + name[1:]
    if len(name) > MAX_LENGTH:
        digest = hashlib.sha256(group_id.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
        name = f"{name[: MAX_LENGTH - _HASH_CHARS - 2]}~~{digest}"
    return name


def _escaped(match: re.Match[str]) -> str:
    return _escape(match[0])


def _escape(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode(errors="surrogatepass"))
