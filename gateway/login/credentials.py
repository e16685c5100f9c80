"""The stores of the users of PLAIN and SCRAM."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from pydantic import SecretStr

from protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, credential_of
from protocol.sasl.scram_forms import USUAL_FORM, FormCounts, salt_of_kafka

SEED_BYTES = 32
"""Random bytes for a salt."""


class ScramCredentials(Protocol):
    """A store of users. Each login queries it, so it answers from memory."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """None if the user is unknown, or has no password for this mechanism."""

    @property
    def forms(self) -> FormCounts:
        """What its users look like to unauthenticated clients."""


class ConfiguredUsers:
    """The users of the gateway's configuration. Their passwords are not kept."""

    def __init__(self, passwords: Mapping[str, SecretStr]) -> None:
        """Takes milliseconds for each user."""
        self._credentials = {
            (user, mechanism): credential_of(
                mechanism, password.get_secret_value(), salt_of_kafka(os.urandom(SEED_BYTES)), MIN_ITERATIONS
            )
            for user, password in passwords.items()
            for mechanism in ScramMechanism
        }
        self.forms = FormCounts()
        self.forms.add(USUAL_FORM, len(passwords))

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))
