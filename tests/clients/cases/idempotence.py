"""The idempotent producer."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, expect, numbered, sent, shown

FEATURE = "idempotence"


def produced(lab: Lab) -> Any:
    """records in order, each once"""
    topic = lab.topic(2)
    answers = lab.client.produce(topic, numbered(1_000, 2), idempotent=True)
    expect(answers, [[n % 2, n // 2] for n in range(1_000)])
    expect(shown(lab.witness.fetch(topic, 500, partition=1), "key"), [[each["key"]] for each in numbered(1_000)[1::2]])


def compressed(lab: Lab) -> Any:
    """with compression"""
    topic = lab.topic()
    records = numbered(200)
    lab.client.produce(topic, records, codec="gzip", idempotent=True)
    expect(shown(lab.witness.fetch(topic, 200)), sent(records))


def several_producers(lab: Lab) -> Any:
    """one producer after the other"""
    topic = lab.topic()
    for first in (0, 50, 100):
        answers = lab.client.produce(topic, numbered(50), idempotent=True)
        expect(answers, [[0, first + n] for n in range(50)])
