"""Logging in with every mechanism of the client, and logins that must be refused."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, expect, numbered, values
from tests.support.logins import forged

FEATURE = "logins"
COUNT = 20


def plain_over_tls(lab: Lab) -> Any:
    """PLAIN over TLS"""
    return _produced_and_consumed(lab, "SASL_TLS", "PLAIN")


def scram_256_over_tls(lab: Lab) -> Any:
    """SCRAM-SHA-256 over TLS"""
    return _produced_and_consumed(lab, "SASL_TLS", "SCRAM-SHA-256")


def scram_512_over_tls(lab: Lab) -> Any:
    """SCRAM-SHA-512 over TLS"""
    return _produced_and_consumed(lab, "SASL_TLS", "SCRAM-SHA-512")


def bearer_over_tls(lab: Lab) -> Any:
    """OAUTHBEARER over TLS"""
    return _produced_and_consumed(lab, "SASL_TLS", "OAUTHBEARER")


def plain(lab: Lab) -> Any:
    """PLAIN without TLS"""
    return _produced_and_consumed(lab, "SASL", "PLAIN")


def scram_256(lab: Lab) -> Any:
    """SCRAM-SHA-256 without TLS"""
    return _produced_and_consumed(lab, "SASL", "SCRAM-SHA-256")


def bearer(lab: Lab) -> Any:
    """OAUTHBEARER without TLS"""
    return _produced_and_consumed(lab, "SASL", "OAUTHBEARER")


def certificate(lab: Lab) -> Any:
    """a certificate of the client"""
    return _produced_and_consumed(lab, "MUTUAL", None)


def wrong_password(lab: Lab) -> Any:
    """PLAIN with a wrong password is refused"""
    return _refused(lab, "SASL_TLS", "PLAIN", password="wrong")


def wrong_proof(lab: Lab) -> Any:
    """SCRAM-SHA-512 with a wrong password is refused"""
    return _refused(lab, "SASL_TLS", "SCRAM-SHA-512", password="wrong")


def unknown_user(lab: Lab) -> Any:
    """SCRAM-SHA-256 with an unknown user is refused"""
    return _refused(lab, "SASL", "SCRAM-SHA-256", user="nobody")


def forged_token(lab: Lab) -> None:
    """OAUTHBEARER with a forged token is refused"""
    token = lab.login("SASL_TLS", "OAUTHBEARER")["token"]
    _refused(lab, "SASL_TLS", "OAUTHBEARER", token=forged(token))  # KafkaJS sees only that the connection is closed


def no_certificate(lab: Lab) -> None:
    """no certificate where one is wanted: refused"""
    nothing = {"certificate": None, "key": None, "key_store": None}
    _refused(lab, "MUTUAL", None, **nothing)  # the error depends on the server's TLS library


def _produced_and_consumed(lab: Lab, listener: str, mechanism: str | None) -> Any:
    topic, group, records = lab.topic(), lab.name("g"), numbered(COUNT)
    client = lab.another()
    client.call("log_in", **lab.login(listener, mechanism))
    expect(client.produce(topic, records), [[0, offset] for offset in range(COUNT)])
    client.join(group, topic)
    expect(values(client.poll(COUNT, 1)["records"]), values(records))
    client.call("commit")
    client.call("leave")
    expect(lab.witness.call("committed", group=group, topic=topic, partition=0), COUNT)


def _refused(lab: Lab, listener: str, mechanism: str | None, **changes: Any) -> str:
    """The client's own name of the error."""
    return lab.another().error("log_in", **lab.login(listener, mechanism, **changes))
