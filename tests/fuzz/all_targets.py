"""Every decoder of bytes that others send or have stored."""

from __future__ import annotations

from tests.fuzz.targets import internal, logins, pulsar, records, requests

TARGETS = {target.name: target for room in (requests, logins, records, pulsar, internal) for target in room.TARGETS}
