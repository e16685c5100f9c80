"""The clusters of a gateway with fakes around them: services of a cluster, the fleet, and namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.messages import Member
from gateway.clusters import clusters as module
from gateway.clusters.clusters import Clusters
from gateway.clusters.services import ProcessParts
from gateway.config.gateway_config import Config
from gateway.dispatch import ServedCluster
from gateway.fleet.fleet import Fleet
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import Cluster, Usage
from gateway.requests.context import Listener, Principal
from tests.unit.gateway.fleet.fleet_scene import member_of

CONFIG = Config.model_validate(
    {
        "kafka": {
            "clusters": [
                {"namespace": "acme/*", "users": ["alice"]},
                {"namespace": "other/a", "create_namespace": True},
            ],
            "cluster_limits": {"max_open": 2},
        },
        "fleet": {"forwarding": {}},
    }
)
OWN = ServedCluster(cast(Cluster, SimpleNamespace(name="own", usage=Usage())))
ALICE = Principal(name="alice")
OUTSIDE = Listener("outside")


class FakeServices:
    """Replaces all services of a cluster."""

    made: list[FakeServices]

    def __init__(self, config: Config, fleet: Any, parts: Any, name: str) -> None:
        self.name = name
        self.served = ServedCluster(cast(Cluster, SimpleNamespace(name=name, config=config, usage=Usage())))
        self.started = self.stopped = self.is_busy = self.is_deleted = False
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.answers = True
        self.opened_at: list[str] = []
        FakeServices.made.append(self)

    async def load_rights(self) -> None:
        await Scene.current.rights.wait()
        if Scene.current.rights_error is not None:
            raise Scene.current.rights_error

    def begin_to_start(self) -> None:
        self.started = True

    async def open_elsewhere(self, member: Member) -> bool:
        self.opened_at.append(member.incarnation)
        return self.answers

    async def stop(self) -> None:
        await self.may_stop.wait()
        self.stopped = True


class FakeView:
    open: int

    def __init__(self, fleet: Any, name: str) -> None:
        FakeView.open += 1

    def close(self) -> None:
        FakeView.open -= 1


class Scene:
    current: Scene

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Config = CONFIG) -> None:
        Scene.current = self
        FakeServices.made = []
        FakeView.open = 0
        self.prepared: list[tuple[str, bool]] = []
        self.error: Exception | None = None
        self.rights_error: Exception | None = None
        self.may_prepare, self.rights = asyncio.Event(), asyncio.Event()
        self.may_prepare.set()
        self.rights.set()
        monkeypatch.setattr(module, "ClusterServices", FakeServices)
        monkeypatch.setattr(module, "ClusterView", FakeView)
        monkeypatch.setattr(module, "prepare_namespaces", self._prepare)
        monkeypatch.setattr(module, "UsageTopic", lambda *parts: SimpleNamespace(keep_publishing=asyncio.Event().wait))
        self.metrics = Metrics()
        self.disconnected: list[str] = []
        shared = SimpleNamespace(close_namespace=self.disconnected.append)
        parts = cast(ProcessParts, SimpleNamespace(admin=None, client=None, shared=shared, metrics=self.metrics))
        self.members = [member_of("own", 0)]
        self.clusters = Clusters(config, cast(Fleet, SimpleNamespace(node_id=0, members=self.members)), parts, OWN)

    async def _prepare(self, admin: Any, settings: Any, *, create: bool) -> None:
        self.prepared.append((settings.full_namespace, create))
        await self.may_prepare.wait()
        if self.error is not None:
            raise self.error


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)
