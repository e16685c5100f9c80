"""Topics that stay in their cluster: which errors of the policy are retried."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.topics import local_topics
from gateway.topics.local_topics import keep_local


class FakePulsar:
    """A replicated namespace whose topic policies fail this number of times."""

    def __init__(self, *failures: AdminError) -> None:
        self.failures = list(failures)
        self.requests = 0
        self.namespaces = self.brokers = self.topics = self

    async def policies(self, namespace: str) -> dict[str, Any]:
        return {"replication_clusters": ["here", "there"]}

    async def runtime_configuration(self) -> dict[str, str]:
        return {"clusterName": "here"}

    async def set_policy(self, topic: str, policy: object, value: object) -> None:
        assert value == ["here"]
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)

    async def stats(self, partition: str) -> Any:
        return {"replication": {}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_topics, "PAUSE_S", 0.001)


async def test_a_policy_service_that_needs_a_moment() -> None:
    pulsar = FakePulsar(AdminError(404, "not found"), AdminError(503, "busy"), AdminError(500, "not ready"))
    await keep_local(cast(AdminClient, pulsar), "t/n", "topic", ["topic-partition-0"])
    assert pulsar.requests == 4


@pytest.mark.parametrize("status", [400, 401, 403, 405])
async def test_what_will_never_succeed_is_tried_once(status: int) -> None:
    pulsar = FakePulsar(AdminError(status, "no"))
    with pytest.raises(AdminError, match=str(status)):
        await keep_local(cast(AdminClient, pulsar), "t/n", "topic", ["topic-partition-0"])
    assert pulsar.requests == 1
