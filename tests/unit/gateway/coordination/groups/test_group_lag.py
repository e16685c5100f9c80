"""Lag gauges: which ones are exported, that they disappear with the group, and their bounds."""

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from coordinator.topics import TopicPartition
from gateway.coordination.group_partition import GroupPartition
from gateway.coordination.groups.group_lag import EndOffsets, GroupLag
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError, ServiceNotReadyError
from gateway.pulsar.position import Position
from gateway.topics.catalog import TopicCatalog
from tests.unit.gateway.coordination.fake_coordinator import FakeCoordinator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeEnds:
    def __init__(self, ends: Mapping[TopicPartition, int | PulsarError | None]) -> None:
        self.ends = dict(ends)
        self.asked: Counter[TopicPartition] = Counter()

    async def read(self, partition: TopicPartition) -> int | None:
        self.asked[partition] += 1
        end = self.ends[partition]
        if isinstance(end, PulsarError):
            raise end
        return end

    def keep_only(self, partitions: set[TopicPartition]) -> None:
        pass


class Harness:
    def __init__(self, ends: Mapping[TopicPartition, int | PulsarError | None], max_series: int = 100) -> None:
        self.metrics = Metrics()
        self.ends = FakeEnds(ends)
        self.coordinators: list[FakeCoordinator] = []
        self.lag = GroupLag(
            cast(EndOffsets, self.ends), lambda: cast(list[GroupPartition], self.coordinators), self.metrics, max_series
        )

    async def series(self, *groups: dict[str, dict[TopicPartition, int]]) -> dict[tuple[str, str], float]:
        self.coordinators = [FakeCoordinator(each) for each in groups]
        await self.lag.refresh()
        return {
            (sample.labels["group"], sample.labels["partition"]): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "kafka_gateway_group_lag"
        }


async def test_each_partition_is_asked_once_and_goes_with_its_groups() -> None:
    harness = Harness({T0: 10, T1: 3})
    found = await harness.series({"a": {T0: 4, T1: 3}}, {"b": {T0: 12}})
    assert found == {("a", "0"): 6, ("a", "1"): 0, ("b", "0"): 0}
    assert harness.ends.asked == {T0: 1, T1: 1}
    assert await harness.series({"a": {T0: 4}}) == {("a", "0"): 6}
    assert await harness.series() == {}


async def test_a_lapse_of_the_lease_hides_the_gauges() -> None:
    harness = Harness({T0: 10})
    assert await harness.series({"a": {T0: 4}}) == {("a", "0"): 6}
    for serves, shown in ((False, 0), (True, 1)):
        harness.coordinators[0].serves = serves
        families = {family.name: family for family in harness.metrics.registry.collect()}
        assert len(families["kafka_gateway_group_lag"].samples) == shown


async def test_unknown_ends_have_no_lag() -> None:
    harness = Harness({T0: ServiceNotReadyError("moving"), T1: None})
    assert await harness.series({"a": {T0: 4, T1: 3}}) == {}


async def test_series_are_bounded() -> None:
    harness = Harness({T0: 10}, max_series=2)
    assert len(await harness.series({f"g{number}": {T0: 1} for number in range(5)})) == 2
    assert harness.metrics.registry.get_sample_value("kafka_gateway_group_lag_omitted") == 3


async def test_of_a_group_with_too_many_offsets_the_first_ones_are_shown() -> None:
    harness = Harness({T0: 10, T1: 10}, max_series=3)
    assert len(await harness.series({f"g{number}": {T0: 1, T1: 1} for number in range(3)})) == 3
    assert harness.metrics.registry.get_sample_value("kafka_gateway_group_lag_omitted") == 3


class FakePulsar:
    """The client, the admin API, the catalog and the open logs at once."""

    def __init__(self) -> None:
        self.topics = self
        self.last = Position(3, 4)
        self.entries_read = 0
        self.opened: Any = None

    async def get(self, name: str) -> Any:
        return SimpleNamespace(partitions=1, pulsar_topic=lambda number: name) if name == "t" else None

    async def last_position(self, topic: str) -> Position:
        return self.last

    async def entry(self, topic: str, position: Position) -> Any:
        self.entries_read += 1
        return SimpleNamespace(index=position.entry_id * 10 + 9)

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return {"index": "99"}

    def find(self, topic: str, partition: int) -> Any:
        return self.opened


async def test_ends_are_read_where_they_moved() -> None:
    pulsar = FakePulsar()
    ends = EndOffsets(
        cast(PulsarClient, pulsar), cast(AdminClient, pulsar), cast(TopicCatalog, pulsar), cast(LogRegistry, pulsar)
    )
    assert [await ends.read(T0), await ends.read(T0), pulsar.entries_read] == [50, 50, 1]
    pulsar.last = Position(3, 5)
    assert [await ends.read(T0), pulsar.entries_read] == [60, 2]
    pulsar.last = Position(3, 6)
    pulsar.opened = SimpleNamespace(source=SimpleNamespace(last_position=Position(3, 7)), end_offset=80)
    assert [await ends.read(T0), pulsar.entries_read] == [80, 2], "an open log knows"
    pulsar.last, pulsar.opened = Position(8, -1), None
    assert await ends.read(T0) == 100, "nothing is stored any more"
    assert await ends.read(T1) is None
    assert await ends.read(TopicPartition("gone", 0)) is None
