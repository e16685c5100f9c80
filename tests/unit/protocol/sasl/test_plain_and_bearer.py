"""The messages of PLAIN and OAUTHBEARER."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sasl import plain
from protocol.sasl.failure import LoginFailed
from protocol.sasl.oauth_bearer import MAX_PAIRS, MAX_USER_CHARS, failure, parse_bearer

MAX_NAME_BYTES = 100
parse_plain = partial(plain.parse_plain, max_name_bytes=MAX_NAME_BYTES)
NO_NUL = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(NO_NUL, NO_NUL, NO_NUL)
def test_plain(authorization_id: str, user: str, password: str) -> None:
    message = parse_plain("\0".join((authorization_id, user, password)).encode())
    assert tuple(message) == (authorization_id, user, password)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_plain(b"\0alice\0secret"))
    assert "eyJ" not in repr(parse_bearer(b"n,,\x01auth=Bearer eyJ\x01\x01"))


@pytest.mark.parametrize(("message", "parts"), [(b"", 1), (b"\0", 2), (b"a\0b\0c\0d", 4), (b"a\0b\0c\0d\0e", 4)])
def test_plain_with_other_than_three_parts(message: bytes, parts: int) -> None:
    with pytest.raises(LoginFailed) as failed:
        parse_plain(message)
    assert failed.value.answer == f"Invalid SASL/PLAIN response: expected 3 tokens, got {parts}"


@pytest.mark.parametrize("message", [b"\0%b\0secret", b"%b\0alice\0secret"])
def test_plain_with_a_long_name(message: bytes) -> None:
    """The client has not logged in: to look for its name must cost little."""
    assert parse_plain(message % (b"\xff" * MAX_NAME_BYTES)).password == "secret"
    with pytest.raises(LoginFailed) as failed:
        parse_plain(message % (b"\xff" * (MAX_NAME_BYTES + 1)))
    assert failed.value.answer == plain.WRONG


def test_bearer() -> None:
    message = parse_bearer(b"n,a=al=2Cice,\x01auth=bearer  a.b-c_d~e+f/g==\x01logicalCluster=x y\x01\x01")
    assert message == ("al,ice", "a.b-c_d~e+f/g==", {"logicalCluster": "x y"})


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Basic x\x01\x01",
     b"y,,\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Bearer x\x01", b"n,,\x01auth=Bearer x y\x01\x01",
     b"n,,\x01host=x\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01"],
)  # fmt: skip
def test_bearer_of_unknown_forms(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        parse_bearer(message)


def test_bearer_with_many_extensions() -> None:
    """They are parsed before the login, on the event loop."""
    extensions = b"".join(b"%c=b\x01" % letter for letter in range(ord("a"), ord("z"))) * 9
    pairs = extensions.split(b"\x01")[: MAX_PAIRS - 1]
    message = b"\x01".join([b"n,,", b"auth=Bearer x", *pairs, b"", b""])
    assert parse_bearer(message).token == "x"
    with pytest.raises(LoginFailed):
        parse_bearer(message.replace(b"auth", b"c=d\x01auth"))
    with pytest.raises(LoginFailed):
        parse_bearer(b"n,a=" + (MAX_USER_CHARS - 1) * b"x" + b",\x01auth=Bearer x\x01\x01")


@given(st.binary(max_size=80) | st.text(alphabet="n,\x01authBer =x.", max_size=80).map(str.encode))
def test_whatever_comes_is_parsed_or_refused(message: bytes) -> None:
    for parse in (parse_plain, parse_bearer):
        with contextlib.suppress(LoginFailed):
            parse(message)


def test_a_failure_is_json() -> None:
    assert failure("invalid_token") == b'{"status":"invalid_token"}'
