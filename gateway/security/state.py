"""The state that results from all records of `~security`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap

import structlog

from gateway.security.acls import Acl, Acls
from gateway.security.connection_rates import ConnectionRates
from gateway.security.quota_entities import CONNECTION_RATE
from gateway.security.records import (
    SECRET_KEY,
    Entity,
    QuotaKey,
    Record,
    ScramKey,
    SecretKey,
    UnreadableRecordError,
    decode_record,
)
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_forms import FormCounts, UserForm, user_form

log = structlog.get_logger()
RECORD_BYTES = 800
"""What a small record takes in memory besides its bytes, which are there twice: as they are, and decoded."""


class SecurityState:
    """Only `apply` and `clear` change the records."""

    def __init__(self) -> None:
        self.acls = Acls()
        self.scram: dict[ScramKey, ScramCredential] = {}
        self.forms = FormCounts()
        """What the users of `scram` look like to unauthenticated clients."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.quotas_version = 0
        """Increases with each change of a quota."""
        self.connection_rates = ConnectionRates()
        """Those of the quotas that are for addresses."""
        self.secret: bytes | None = None
        """Shared by all gateways of the fleet, in its own cluster."""
        self.memory_bytes = 0
        """About what the records take."""
        self._is_complete = False
        self._records: dict[bytes, bytes] = {}
        self._unreadable: set[bytes] = set()

    @property
    def knows_all_acls(self) -> bool:
        """False while ACLs may be missing: they may deny what the others allow."""
        return self._is_complete and not self._unreadable

    def complete(self) -> None:
        """All existing records were applied."""
        self._is_complete = True
        self.acls.version += 1

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """The records that produce the same state, including those of kinds that are unknown here."""
        return iter(tuple(self._records.items()))

    def growth_bytes(self, changes: Mapping[bytes, bytes | None]) -> int:
        """How much more memory the records will take; negative if it will be less."""
        before = ((key, self._records.get(key)) for key in changes)
        return sum(starmap(_memory_bytes, changes.items())) - sum(starmap(_memory_bytes, before))

    def clear(self) -> None:
        for key, _ in self.records():
            self.apply((key, None))

    def apply(self, record: Record) -> None:
        key, value = record
        if key == SECRET_KEY and value is not None and self.secret is not None:
            return  # gateways that start at the same time have each written one
        self.memory_bytes += self.growth_bytes({key: value})
        if value is None:
            self._records.pop(key, None)
        else:
            self._records[key] = value
        try:
            decoded = decode_record(key, value)
        except UnreadableRecordError as error:
            log.error("cannot read a security record: all access is denied until it is deleted", error=str(error))
            self._count_unreadable(key, unreadable=value is not None)
            return
        self._count_unreadable(key, unreadable=False)
        if decoded is None:
            return
        subject, new = decoded
        if isinstance(subject, Acl):
            (self.acls.remove if new is None else self.acls.add)(subject)
        elif isinstance(subject, ScramKey):
            self._set_credential(subject, new if isinstance(new, ScramCredential) else None)
        elif isinstance(subject, SecretKey):
            self.secret = new if isinstance(new, bytes) else None
        else:
            self._set_quota(subject, new if isinstance(new, float) else None)

    def _count_unreadable(self, key: bytes, *, unreadable: bool) -> None:
        if unreadable == (key in self._unreadable):
            return
        self._unreadable.symmetric_difference_update({key})
        self.acls.version += 1

    def _set_credential(self, key: ScramKey, credential: ScramCredential | None) -> None:
        self.forms.add(self._form(key.user), -1)
        if credential is None:
            self.scram.pop(key, None)
        else:
            self.scram[key] = credential
        self.forms.add(self._form(key.user))

    def _form(self, user: str) -> UserForm:
        found = {each: self.scram.get(ScramKey(each, user)) for each in ScramMechanism}
        return user_form({each: credential for each, credential in found.items() if credential is not None})

    def _set_quota(self, key: QuotaKey, value: float | None) -> None:
        self.quotas_version += 1
        quotas = self.quotas.setdefault(key.entity, {})
        if value is None:
            quotas.pop(key.quota, None)
        else:
            quotas[key.quota] = value
        if not quotas:
            del self.quotas[key.entity]
        if key.quota == CONNECTION_RATE:
            self.connection_rates.set(key.entity, value)


def _memory_bytes(key: bytes, value: bytes | None) -> int:
    return 0 if value is None else RECORD_BYTES + 2 * (len(key) + len(value))
