"""What a client can see of users before it has logged in: a name without a user has to look like one with a user.

With SCRAM, a client that sends a name gets the name's salt and iterations. With PLAIN, it sees how long the check of
the password takes. A name without a user gets a form that users have, chosen by the name and a secret: each form as
often, in proportion, as users have it. When users change, few names change their form, and each as if its password
had been set anew.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

SALT_BITS = 130
"""Kafka's tools make a salt of a number of so many bits, written with 36 digits."""
MAX_SALT_BYTES = 64
"""The longest salt of a name without a user. No common client makes longer ones."""
MAX_FORMS = 16
"""The number of forms of a store from which one is chosen, the most frequent ones: a client must not cause more work
the more different forms administrators have made."""
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_OF_KAFKA = re.compile(rb"[1-9a-z][0-9a-z]{19,25}")
_UNIT = 1 << 64


class PasswordForm(NamedTuple):
    """What can be seen of one credential."""

    mechanism: ScramMechanism
    iterations: int = MIN_ITERATIONS
    salt_bytes: int | None = None
    """None for a salt as Kafka's tools make it."""


UserForm = tuple[PasswordForm, ...]
"""The forms of a user's credentials, in the order of mechanisms."""
USUAL_FORM: UserForm = tuple(PasswordForm(mechanism) for mechanism in ScramMechanism)


def user_form(credentials: Mapping[ScramMechanism, ScramCredential]) -> UserForm:
    return tuple(_form(each, credentials[each]) for each in ScramMechanism if each in credentials)


def _form(mechanism: ScramMechanism, credential: ScramCredential) -> PasswordForm:
    is_of_kafka = _SALT_OF_KAFKA.fullmatch(credential.salt) is not None
    salt_bytes = None if is_of_kafka else min(len(credential.salt), MAX_SALT_BYTES)
    return PasswordForm(mechanism, credential.iterations, salt_bytes)


class FormCounts:
    """How many users of a store have each form."""

    def __init__(self) -> None:
        self._counts: Counter[UserForm] = Counter()
        self._shares: dict[UserForm, float] | None = None

    def add(self, form: UserForm, users: int = 1) -> None:
        """`users` is negative for users that are no more. A user without credentials does not count."""
        if not form:
            return
        self._counts[form] += users
        if not self._counts[form]:
            del self._counts[form]
        self._shares = None

    @property
    def shares(self) -> Mapping[UserForm, float]:
        """The frequent forms, with the share of users that have each."""
        if self._shares is None:
            frequent = self._counts.most_common(MAX_FORMS)
            total = sum(count for _, count in frequent)
            self._shares = {form: count / total for form, count in frequent}
        return self._shares


def chosen_form(stores: Iterable[FormCounts], user: str, secret: bytes) -> UserForm:
    """The form of a name without a user; all stores that have users count the same."""
    weights = dict[UserForm, float]()
    for store in stores:
        for form, share in store.shares.items():
            weights[form] = weights.get(form, 0.0) + share
    return max(weights, key=lambda form: _draw(form, user, secret) / weights[form], default=USUAL_FORM)


def _draw(form: UserForm, user: str, secret: bytes) -> float:
    """The logarithm of a number between 0 and 1, all equally likely. Divided by its weight, that of a form with
    twice the weight is the largest twice as often."""
    drawn = hmac.digest(secret, f"form {_text(form)} {user}".encode(), "sha256")
    return math.log((int.from_bytes(drawn[:8], "big") + 1) / (_UNIT + 1))


def unknown_user(form: PasswordForm, user: str, secret: bytes) -> ScramCredential:
    """A credential that no password matches. It stays the same for a name."""
    key = hmac.digest(secret, f"key {_text((form,))} {user}".encode(), form.mechanism.digest)
    return ScramCredential(salt_for(form, user, secret), key, key, form.iterations)


def salt_for(form: PasswordForm, user: str, secret: bytes) -> bytes:
    """The salt that is shown of a name, unless its password was set with another one."""
    seed = hmac.digest(secret, f"salt {_text((form,))} {user}".encode(), "sha256")
    return salt_of_kafka(seed) if form.salt_bytes is None else hashlib.shake_256(seed).digest(form.salt_bytes)


def salt_of_kafka(seed: bytes) -> bytes:
    """A salt as Kafka's tools make it. `seed` has random bytes, at least 17 of them."""
    number, digits = int.from_bytes(seed, "big") % (1 << SALT_BITS), bytearray()
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


def _text(form: UserForm) -> str:
    return " ".join(f"{each.mechanism.value},{each.iterations},{each.salt_bytes}" for each in form)
