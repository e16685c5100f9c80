"""Administrators of Pulsar set policies that refuse what the gateway does, and take them back: nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Sender, create_topic, read_all, sending
from tests.integration.native import NAMESPACE, Admin, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

REFUSED_S = 3.0
RECORDS = 50
"""Acknowledged before the policy, and after it."""
PAUSE_S = 0.02
PRODUCER = {"enable_idempotence": True, "retry_backoff_ms": 100, "message_timeout_ms": 60_000}
THREE_BOOKIES = {
    "bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2, "managedLedgerMaxMarkDeleteRate": 0,
}  # fmt: skip
SMALL, LARGE, MOST = 300, 3_000, 2_000
BURST = 40

Policy = Callable[[Admin, str, bool], object]
"""Sets a policy for a topic, or removes it again."""


def of_topic(name: str, value: Any) -> Policy:
    def change(admin: Admin, topic: str, is_set: bool) -> None:
        admin.topic("POST" if is_set else "DELETE", topic, f"/{name}", value if is_set else None)

    return change


def encryption(admin: Admin, _topic: str, is_set: bool) -> None:
    admin.call("POST", f"namespaces/{NAMESPACE}/encryptionRequired", is_set)


POLICIES = {
    "producers must encrypt": encryption,
    "more bookies than there are": of_topic("persistence", THREE_BOOKIES),
    "a single consumer": of_topic("maxConsumers", 1),
    "a single producer": of_topic("maxProducers", 1),
    "deduplication": of_topic("deduplicationEnabled", True),
}


@pytest.mark.parametrize("name", POLICIES)
def test_writing_goes_on_when_the_policy_is_gone(
    gateway: GatewayProcess, pulsar: PulsarStandalone, name: str
) -> None:
    """The topic is unloaded twice, so that producers and readers have to be opened under the policy, and after it."""
    admin, topic, policy = Admin(pulsar), unique_topic("policy"), POLICIES[name]
    create_topic(gateway.bootstrap, topic)
    sender = Sender(gateway.bootstrap, topic, **PRODUCER)
    with sending([sender], PAUSE_S):
        wait_for(lambda: sender.acknowledged >= RECORDS, "records are written")
        policy(admin, topic, True)
        try:
            admin.unload(f"{topic}-partition-0")
            time.sleep(REFUSED_S)
        finally:
            policy(admin, topic, False)
        admin.unload(f"{topic}-partition-0")
        before = sender.acknowledged
        wait_for(lambda: sender.acknowledged >= before + RECORDS, "records are written again")
    sender.flush()
    assert not sender.errors
    assert read_all(gateway.bootstrap, topic) == sender.sent


def test_a_topic_that_allows_smaller_messages_only(gateway: GatewayProcess, pulsar: PulsarStandalone) -> None:
    """Batches that share an entry are within the limit, each by itself."""
    admin, topic = Admin(pulsar), unique_topic("small")
    create_topic(gateway.bootstrap, topic)
    admin.topic("POST", topic, "/maxMessageSize", MOST)
    wait_for(lambda: is_refused(gateway, topic), "the broker applies the policy")
    senders = [
        Sender(gateway.bootstrap, topic, batch_num_messages=1, max_in_flight_requests_per_connection=1, **PRODUCER)
        for _ in range(BURST)
    ]
    for number, sender in enumerate(senders):
        sender.send(b"%d-%d-" % (number, each) + b"x" * SMALL for each in range(BURST))
    for sender in senders:
        sender.flush()
        assert not sender.errors
    written = [value for value in read_all(gateway.bootstrap, topic) if len(value) < MOST]
    assert sorted(written) == sorted(value for sender in senders for value in sender.sent)


def is_refused(gateway: GatewayProcess, topic: str) -> bool:
    sender = Sender(gateway.bootstrap, topic)
    sender.send([b"x" * LARGE])
    sender.flush()
    return [error.code() for error in sender.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
