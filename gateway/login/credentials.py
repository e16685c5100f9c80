"""The stores of the users of PLAIN and SCRAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydantic import SecretStr

from protocol.sasl.scram import ScramCredential, ScramMechanism, credential_of
from protocol.sasl.scram_forms import USUAL_FORM, FormCounts, salt_for


class ScramCredentials(Protocol):
    """A store of users. Each login queries it, so it answers from memory."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """None if the user is unknown, or has no password for this mechanism."""

    @property
    def forms(self) -> FormCounts:
        """What its users look like to unauthenticated clients."""


class ConfiguredUsers:
    """The users of the gateway's configuration. Their passwords are not kept."""

    def __init__(self, passwords: Mapping[str, SecretStr], secret: bytes) -> None:
        """Takes milliseconds for each user. The salts are made from the fleet's `secret`, as those of unknown users:
        they are the same at all gateways."""
        self._credentials = {
            (user, form.mechanism): credential_of(
                form.mechanism, password.get_secret_value(), salt_for(form, user, secret), form.iterations
            )
            for user, password in passwords.items()
            for form in USUAL_FORM
        }
        self.forms = FormCounts()
        self.forms.add(USUAL_FORM, len(passwords))

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))
