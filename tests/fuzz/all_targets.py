"""Every decoder of bytes that others send or have stored."""

from __future__ import annotations

from tests.fuzz.targets import internal, logins, pulsar, records, requests, transactions

ROOMS = (requests, logins, records, pulsar, internal, transactions)
TARGETS = {target.name: target for room in ROOMS for target in room.TARGETS}
