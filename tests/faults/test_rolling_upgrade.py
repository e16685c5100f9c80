"""A fleet is upgraded gateway by gateway, and set back in the same way, while everything is in use.

All clients go on: transactions, idempotent producers, and groups of both protocols, at the gateways' own addresses and
at the single one. What one version has stored and told the others, the other one has to understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Sender, create_topic, read_all, sending
from tests.integration.native import wait_for
from tests.support.gateway_process import REPOSITORY
from tests.support.haproxy_fleet import HaproxyFleet
from tests.support.names import unique_topic
from tests.support.older_gateway import NotInThisCloneError, extract_sources
from tests.support.traffic.group_traffic import PROTOCOLS, GroupTraffic
from tests.support.traffic.transaction_history import check
from tests.support.traffic.transactional_traffic import Traffic

OLDER = "6c87f309995bc579d2e0869afffe4011aa71c317"
"""Of 2026-11-23: the first with transactions and logins whose trial passes."""
PARTITIONS = 4
WRITERS = 2
COMMITS = 3
"""Commits of each writer after each gateway's change of version."""
READ = 200
"""Records that each group reads after it."""
RECOVERY_S = 120.0
PAUSE_S = 0.05
SENT_AT_ONCE = 5
PRODUCER = {"enable_idempotence": True, "retry_backoff_ms": 50, "reconnect_backoff_max_ms": 500}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def older_sources(tmp_path: Path) -> Path:
    try:
        return extract_sources(OLDER, tmp_path / "older")
    except NotInThisCloneError as error:
        pytest.skip(str(error))


@pytest.fixture
def fleet(pulsar: PulsarStandalone, older_sources: Path, tmp_path: Path) -> Iterator[HaproxyFleet]:
    found = HaproxyFleet(tmp_path / "fleet", pulsar.service_url, pulsar.admin_url, 2)
    for gateway in found.gateways:
        gateway.sources = older_sources
    try:
        found.start()
        yield found
    finally:
        found.stop()


def await_progress(transactions: Traffic, groups: Sequence[GroupTraffic]) -> None:
    before = [group.count for group in groups]
    transactions.await_commits(COMMITS, RECOVERY_S)
    for group, had in zip(groups, before, strict=True):
        wait_for(lambda: group.count >= had + READ, f"{group.group} goes on", RECOVERY_S)  # noqa: B023


def test_up_and_back_under_load(fleet: HaproxyFleet, older_sources: Path) -> None:
    ways = [fleet.bootstrap, fleet.single]
    transactional, plain = unique_topic("transactions"), unique_topic("plain")
    for topic in (transactional, plain):
        create_topic(fleet.bootstrap, topic, PARTITIONS)
    senders = [Sender(ways[each % 2], plain, partition=each, **PRODUCER) for each in range(PARTITIONS)]
    groups = [GroupTraffic(ways, plain, protocol) for protocol in PROTOCOLS]
    with Traffic(ways, transactional, PARTITIONS, WRITERS) as transactions, ExitStack() as going:
        going.enter_context(sending(senders, PAUSE_S, SENT_AT_ONCE))
        for group in groups:
            going.enter_context(group)
        await_progress(transactions, groups)
        for sources in (REPOSITORY, older_sources):
            for gateway in fleet.gateways:
                gateway.stop()
                gateway.sources = sources
                gateway.start()
                gateway.wait_ready()
                create_topic(fleet.bootstrap, unique_topic("later"), PARTITIONS)
                await_progress(transactions, groups)
        history = transactions.stop()
    check(history)
    for sender in senders:
        sender.flush()
        assert not sender.errors, sender.errors
    logs = [read_all(fleet.bootstrap, plain, partition) for partition in range(PARTITIONS)]
    assert logs == [sender.sent for sender in senders]
    for group in groups:
        group.check(fleet.bootstrap, logs)
