"""SCRAM against the examples of its RFCs, and against clients that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sasl.failure import LoginFailed
from protocol.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
# RFC 7677, section 3
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def challenged(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    server = ScramServer(mechanism, SERVER_NONCE)
    assert server.first(CLIENT_FIRST) == "user"
    assert server.challenge(credential_of(mechanism, "pencil", SALT, 4_096)) == CHALLENGE
    return server


class HonestClient:
    """Proves a password; its messages may have any other fields."""

    def __init__(self, mechanism: ScramMechanism, password: str) -> None:
        self._mechanism, self._password = mechanism, password

    def final(self, first_bare: str, challenge: str, *, header: bytes = b"n,,", nonce: str | None = None) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        digest = self._mechanism.digest
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(digest, self._password.encode(), salt, int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", digest)
        unproved = f"c={base64.b64encode(header).decode()},r={nonce or fields['r']}"
        signed = f"{first_bare},{challenge},{unproved}".encode()
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_the_rfc() -> None:
    assert challenged().final(CLIENT_FINAL) == SERVER_FINAL


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_right_password_is_proved_and_a_wrong_one_is_not(mechanism: ScramMechanism) -> None:
    bare = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert challenged(mechanism).final(HonestClient(mechanism, "pencil").final(bare, CHALLENGE.decode()))[:2] == b"v="
    with pytest.raises(LoginFailed, match="proof"):
        challenged(mechanism).final(HonestClient(mechanism, "pen").final(bare, CHALLENGE.decode()))


def test_a_proof_counts_for_its_nonce_only() -> None:
    """CVE-2024-56128: a nonce that only ends as the right one is another one."""
    bare, client = "n=user,r=rOprNGfwEbeRWgbNEkqO", HonestClient(SHA_256, "pencil")
    replayed = ScramServer(SHA_256, "another")
    replayed.first(CLIENT_FIRST)
    replayed.challenge(credential_of(SHA_256, "pencil", SALT, 4_096))
    with pytest.raises(LoginFailed, match="nonce"):
        replayed.final(CLIENT_FINAL)
    for nonce in (SERVER_NONCE, f"x{CHALLENGE[2:].decode().split(',')[0]}"):
        with pytest.raises(LoginFailed, match="nonce"):
            challenged().final(client.final(bare, CHALLENGE.decode(), nonce=nonce))


def test_the_header_is_the_one_of_the_first_message() -> None:
    final = HonestClient(SHA_256, "pencil").final("n=user,r=rOprNGfwEbeRWgbNEkqO", CHALLENGE.decode(), header=b"y,,")
    with pytest.raises(LoginFailed, match="header"):
        challenged().final(final)


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"p=tls-unique,,n=user,r=x", b"y,,n=user,r=x", b"n,,n=,r=x", b"n,,n=us=er,r=x", b"n,,n=user,r=",
     b"n,,n=user,r=x,", b"\xff,,n=user,r=x", b"n,,m=x,n=user,r=x"],
)  # fmt: skip
def test_first_messages_of_unknown_forms(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        ScramServer(SHA_256, "nonce").first(message)


def test_names_with_commas_and_other_ids() -> None:
    server = ScramServer(SHA_256, "nonce")
    assert server.first(b"n,a=a=2Cb=3D,n=a=2Cb=3D,r=x") == "a,b="
    with pytest.raises(LoginFailed) as failed:
        ScramServer(SHA_256, "nonce").first(b"n,a=root,n=user,r=x")
    assert failed.value.answer == (
        "Authentication failed: Client requested an authorization id that is different from username"
    )


@given(st.binary(max_size=60) | st.text(alphabet="cnr,=abp+/1", max_size=60).map(str.encode))
def test_no_final_message_but_the_right_one(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        challenged().final(message)


@pytest.mark.parametrize("proof", ["", "AAAA", "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ"])
def test_proofs_of_other_lengths(proof: str) -> None:
    with pytest.raises(LoginFailed):
        challenged().final(CLIENT_FINAL[: CLIENT_FINAL.index(b",p=") + 3] + proof.encode())


def test_a_credential_does_not_show_its_parts() -> None:
    assert "salt" not in repr(ScramCredential(b"salt", b"stored", b"server", 4_096))


@pytest.mark.parametrize(
    "message", ["n,,n={},r=abc", "n,a={0},n={0},r=abc", "n,,n=user,r={}", "n,,n=user,r=abc,m={}"]
)
def test_an_unknown_user_uses_little_memory(message: str) -> None:
    """A first message is kept while the final one is awaited, in three copies."""
    assert ScramServer(SHA_256, SERVER_NONCE).first(message.format("x" * 1_000).encode())
    with pytest.raises(LoginFailed, match="too long"):
        ScramServer(SHA_256, SERVER_NONCE).first(message.format("x" * 5_000).encode())
