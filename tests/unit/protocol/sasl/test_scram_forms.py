"""What names without a user look like."""

from __future__ import annotations

import pytest

from protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism
from protocol.sasl.scram_forms import (
    MAX_FORMS,
    MAX_SALT_BYTES,
    USUAL_FORM,
    FormCounts,
    PasswordForm,
    UserForm,
    chosen_form,
    salt_of_kafka,
    unknown_user,
    user_form,
)

SHA_256, SHA_512 = ScramMechanism
SECRET = b"secret"
NAMES = [f"user{number}" for number in range(400)]
USUAL, SLOW = PasswordForm(SHA_256), PasswordForm(SHA_256, 8_192)


def counts_of(*counted: tuple[UserForm, int]) -> FormCounts:
    counts = FormCounts()
    for form, users in counted:
        counts.add(form, users)
    return counts


def test_unknown_users_stay_as_they_are() -> None:
    first, again = (unknown_user(USUAL, "alice", SECRET) for _ in range(2))
    assert first == again and first.iterations == MIN_ITERATIONS
    others = [unknown_user(USUAL, "bob", SECRET), unknown_user(USUAL, "alice", b"other")]
    assert first.salt not in {other.salt for other in others}
    assert unknown_user(SLOW, "alice", SECRET).salt != first.salt, "with other iterations, the password is another one"


@pytest.mark.parametrize(
    ("salt", "salt_bytes"),
    [
        (salt_of_kafka(b"\xff" * 32), None), (salt_of_kafka(b"\x01" + bytes(16)), None), (b"1" * 26, None),
        (b"", 0), (b"1" * 27, 27), (b"A" * 25, 25), (bytes(20), 20), (b"0" * 25, 25),
        (b"x" * 3_000_000, MAX_SALT_BYTES),
    ],
)  # fmt: skip
def test_forms_of_salts(salt: bytes, salt_bytes: int | None) -> None:
    form = user_form({SHA_512: ScramCredential(salt, b"", b"", 5_000)})
    assert form == (PasswordForm(SHA_512, 5_000, salt_bytes),)
    made = unknown_user(form[0], "alice", SECRET)
    assert salt_bytes is None or len(made.salt) == salt_bytes
    assert made.iterations == 5_000 and len(made.stored_key) == 64


def test_salts_of_kafka_are_numbers() -> None:
    assert int(salt_of_kafka(b"\x07" * 17), 36) == int.from_bytes(b"\x07" * 17, "big") % 2**130
    assert salt_of_kafka(bytes(17)) == b"0"


def test_without_users_the_usual_form() -> None:
    assert chosen_form([], "alice", SECRET) == chosen_form([FormCounts()], "alice", SECRET) == USUAL_FORM


def test_forms_are_chosen_as_often_as_users_have_them() -> None:
    store = counts_of(((USUAL,), 3), ((SLOW,), 1))
    chosen = [chosen_form([store], name, SECRET) for name in NAMES]
    assert 60 < chosen.count((SLOW,)) < 140


def test_a_new_user_changes_few_names() -> None:
    before, after = counts_of(((USUAL,), 9)), counts_of(((USUAL,), 9), ((SLOW,), 1))
    changed = [name for name in NAMES if chosen_form([before], name, SECRET) != chosen_form([after], name, SECRET)]
    assert 0 < len(changed) < 80
    assert chosen_form([after], changed[0], SECRET) == (SLOW,)


def test_users_that_are_no_more_do_not_count() -> None:
    store = counts_of(((USUAL,), 2), ((SLOW,), 1), ((SLOW,), -1), ((), 5))
    assert store.shares == {(USUAL,): 1.0}
    store.add((USUAL,), -2)
    assert not store.shares


def test_many_forms_are_no_more_work() -> None:
    store = counts_of(*(((PasswordForm(SHA_256, 4_096 + number),), 1 + number) for number in range(1_000)))
    assert len(store.shares) == MAX_FORMS and (PasswordForm(SHA_256, 5_095),) in store.shares
