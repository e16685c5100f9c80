"""The configurations of a topic are what Pulsar applies, whatever fails or interferes during a change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from gateway.errors import KafkaError
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.errors import PulsarError
from gateway.topics import policy_changes
from gateway.topics.catalog import TopicCatalog
from gateway.topics.policy_changes import PENDING_PREFIX
from gateway.topics.topic import MESSAGES_ONLY, stored_configs
from gateway.topics.topic_configs import DEFAULTS
from gateway.topics.topic_policies import all_policies
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

NAME = PREFIX + "a"
TEST = "the test itself"
DAYS_30 = str(30 * 24 * 3600 * 1000)
RETENTION, QUOTA, THRESHOLD = TopicPolicy.RETENTION, TopicPolicy.BACKLOG_QUOTA, TopicPolicy.COMPACTION_THRESHOLD


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_changes, "GRACE_S", 0.0)
    monkeypatch.setattr(policy_changes, "PAUSE_S", 0.0)


@pytest.fixture
def pulsar() -> FakeTopics:
    return FakeTopics()


def gateway(pulsar: FakeTopics) -> TopicCatalog:
    return TopicCatalog(pulsar.client, "t/n", 60_000)


async def alter(catalog: TopicCatalog, **change: str | None) -> None:
    named = {name.replace("_", "."): value for name, value in change.items()}

    def changed(present: object) -> dict[str, str]:
        assert isinstance(present, dict)
        return {name: value for name, value in {**present, **named}.items() if value is not None}

    await catalog.alter_configs("a", changed, validate_only=False)


def shown(pulsar: FakeTopics) -> dict[str, str]:
    return dict(stored_configs(NAME, pulsar.properties[NAME]))


def pending(pulsar: FakeTopics) -> list[str]:
    return [key for key in pulsar.properties[NAME] if key.startswith(PENDING_PREFIX)]


def is_applied(pulsar: FakeTopics) -> bool:
    """Policies equal the configurations, and no change is pending."""
    properties = pulsar.properties[NAME]
    wanted = all_policies(shown(pulsar), DEFAULTS, compactable=MESSAGES_ONLY in properties)
    set_ones = {policy: value for policy, value in wanted.items() if value is not None}
    return pulsar.policies[NAME] == set_ones and not pending(pulsar)


async def until_applied(pulsar: FakeTopics) -> None:
    async with asyncio.timeout(10):
        while not is_applied(pulsar):
            await asyncio.sleep(0)


async def all_done() -> None:
    """Every task except the test's own."""
    async with asyncio.timeout(10):
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


class At:
    """Something happens before the request with this number; requests are counted from now."""

    def __init__(self, pulsar: FakeTopics, number: int, event: Callable[[], Awaitable[None]]) -> None:
        self.happened = False
        self._number, self._event, self._counter = number, event, count()
        self._pulsar, self._usual = pulsar, pulsar.before
        pulsar.before = self._before

    def over(self) -> bool:
        """Whether it happened; from now on it does not."""
        self._pulsar.before = self._usual
        return self.happened

    async def _before(self, method: str, topic: str) -> None:
        await asyncio.sleep(0)
        if next(self._counter) == self._number:
            self.happened = True
            await self._event()


async def die() -> None:
    """End all tasks of the gateway."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name() != TEST:
            task.cancel()
    raise asyncio.CancelledError


ALTERATIONS: list[tuple[dict[str, str], dict[str, str | None]]] = [
    ({}, {"retention_ms": DAYS_30}),
    ({"retention.ms": DAYS_30, "retention.bytes": "5000000"}, {"retention_ms": None, "retention_bytes": "9000000"}),
    ({}, {"cleanup_policy": "compact", "segment_ms": "5"}),
    ({"cleanup.policy": "compact"}, {"cleanup_policy": "delete", "retention_ms": DAYS_30}),
]


async def in_turn(case: Callable[[int], Awaitable[bool]]) -> int:
    """Run the case for 0, 1, 2 … until the event does not happen: there are fewer requests."""
    this = asyncio.current_task()
    assert this is not None
    this.set_name(TEST)
    for number in range(200):
        if not await case(number):
            return number
    raise AssertionError("so many requests?")


@pytest.mark.parametrize(("before", "change"), ALTERATIONS)
async def test_a_client_that_leaves(before: dict[str, str], change: dict[str, str | None]) -> None:
    """At any moment; a change that has begun is completed."""

    async def case(number: int) -> bool:
        pulsar = FakeTopics()
        catalog = gateway(pulsar)
        await catalog.create("a", 2, before)
        altering = asyncio.create_task(alter(catalog, **change))

        async def leave() -> None:
            altering.cancel()

        at = At(pulsar, number, leave)
        await asyncio.wait([altering])
        await all_done()
        assert is_applied(pulsar)
        wanted = {key.replace("_", "."): value for key, value in change.items() if value is not None}
        assert wanted.items() <= shown(pulsar).items()
        return at.happened

    assert await in_turn(case) > 5


@pytest.mark.parametrize(("before", "change"), ALTERATIONS)
async def test_a_gateway_that_dies(before: dict[str, str], change: dict[str, str | None]) -> None:
    """At any moment; another gateway completes the change when it loads the topic."""

    async def case(number: int) -> bool:
        pulsar = FakeTopics()
        catalog = gateway(pulsar)
        await catalog.create("a", 2, before)
        at = At(pulsar, number, die)
        await asyncio.wait([asyncio.create_task(alter(catalog, **change))])
        await all_done()
        if not at.over() or pending(pulsar):
            await gateway(pulsar).get("a")
            await until_applied(pulsar)
        assert is_applied(pulsar)
        await all_done()
        return at.happened

    assert await in_turn(case) > 5


async def test_a_gateway_that_dies_while_it_creates() -> None:
    configs = {"retention.ms": DAYS_30, "cleanup.policy": "compact"}

    async def case(number: int) -> bool:
        pulsar = FakeTopics()
        at = At(pulsar, number, die)
        await asyncio.wait([asyncio.create_task(gateway(pulsar).create("a", 2, configs))])
        await all_done()
        at.over()
        if await gateway(pulsar).get("a") is not None:
            await until_applied(pulsar)
            assert shown(pulsar) == configs
        await all_done()
        return at.happened

    assert await in_turn(case) > 5


async def test_a_request_that_fails() -> None:
    """Each request in turn; the change is completed in the background, or was never begun."""

    async def fail() -> None:
        raise AdminError(503, "not now")

    async def case(number: int) -> bool:
        pulsar = FakeTopics()
        catalog = gateway(pulsar)
        await catalog.create("a", 2, {"retention.bytes": "5000000"})
        at = At(pulsar, number, fail)
        try:
            await alter(catalog, retention_bytes=None, retention_ms=DAYS_30)
        except PulsarError:
            await until_applied(pulsar)
        assert is_applied(pulsar)
        await all_done()
        return at.happened

    assert await in_turn(case) > 5


@pytest.mark.parametrize("seed", range(100))
async def test_gateways_that_alter_at_the_same_time(pulsar: FakeTopics, seed: int) -> None:
    """Properties that belong together come from both; the policies result from both."""
    chance = random.Random(seed)

    async def wait_a_little(method: str, topic: str) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    gateways = [gateway(pulsar) for _ in range(3)]
    await gateways[0].create("a", 2, {})
    pulsar.before = wait_a_little
    await asyncio.gather(
        alter(gateways[0], retention_ms=DAYS_30),
        alter(gateways[1], retention_bytes="7000000"),
        alter(gateways[2], cleanup_policy="compact,delete"),
        alter(gateways[2], segment_bytes="5000"),
        gateways[1].get("a", fresh=True),
    )
    await all_done()
    assert is_applied(pulsar)
    assert len(shown(pulsar)) == 4


def refuse(pulsar: FakeTopics) -> None:
    pulsar.refused[RETENTION] = lambda value: isinstance(value, dict) and value["retentionSizeInMB"] == 3


@pytest.mark.parametrize("seed", range(50))
async def test_a_refused_change_beside_another(pulsar: FakeTopics, seed: int) -> None:
    chance = random.Random(seed)

    async def wait_a_little(method: str, topic: str) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    gateways = [gateway(pulsar) for _ in range(2)]
    await gateways[0].create("a", 2, {"retention.bytes": "5000000"})
    refuse(pulsar)
    pulsar.before = wait_a_little
    await asyncio.gather(
        alter(gateways[0], retention_bytes=str(3 * 2**20)), alter(gateways[1], retention_ms=DAYS_30),
        return_exceptions=True,
    )  # fmt: skip
    await all_done()
    assert is_applied(pulsar)
    assert shown(pulsar)["retention.bytes"] == "5000000"


async def test_a_refused_change_of_a_gateway_that_dies() -> None:
    """The configurations are rolled back: 30 days must not become the namespace's seven."""
    before = {"retention.ms": DAYS_30}

    async def case(number: int) -> bool:
        pulsar = FakeTopics()
        catalog = gateway(pulsar)
        await catalog.create("a", 2, before)
        refuse(pulsar)
        at = At(pulsar, number, die)
        altering = asyncio.create_task(alter(catalog, retention_ms="60000", retention_bytes=str(3 * 2**20)))
        await asyncio.wait([altering])
        if not at.happened:
            with pytest.raises(KafkaError) as raised:
                await altering
            assert raised.value.code == ErrorCode.POLICY_VIOLATION
        await all_done()
        at.over()
        await gateway(pulsar).get("a")
        await until_applied(pulsar)
        await all_done()
        assert shown(pulsar) == before
        return at.happened

    assert await in_turn(case) > 5


@pytest.mark.parametrize("hindrance", ["data", "producers", None])
async def test_a_topic_that_cannot_be_as_asked_is_deleted_unless_it_is_used(
    pulsar: FakeTopics, hindrance: str | None
) -> None:
    refuse(pulsar)
    pulsar.entries = 3 if hindrance == "data" else 0
    pulsar.refuses_deletion = hindrance == "producers"
    catalog = gateway(pulsar)
    with pytest.raises(KafkaError) as raised:
        await catalog.create("a", 2, {"retention.bytes": str(3 * 2**20), "segment.ms": "5"})
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert pulsar.requests["delete_partitioned forced"] == 0
    topic = await catalog.get("a")
    assert (topic is not None) == (hindrance is not None)
    if topic is not None:
        assert is_applied(pulsar)
        assert topic.configs == {}
        assert pulsar.requests["create_missed_partitions"] == (hindrance == "producers")


async def test_what_needs_no_policy_costs_no_request(pulsar: FakeTopics) -> None:
    catalog = gateway(pulsar)
    await catalog.create("a", 2, {"segment.ms": "5"})
    pulsar.requests.clear()
    await alter(catalog, segment_ms="6", flush_ms="7")
    assert pulsar.requests == {"partitioned": 1, "put_properties": 1}


async def test_setting_what_is_set_repairs_it(pulsar: FakeTopics) -> None:
    catalog = gateway(pulsar)
    await catalog.create("a", 2, {"retention.ms": DAYS_30})
    pulsar.policies[NAME].clear()
    await alter(catalog, retention_ms=DAYS_30)
    assert is_applied(pulsar)


async def test_policies_that_a_change_does_not_touch_stay(pulsar: FakeTopics) -> None:
    """An administrator has set them with Pulsar's own tools."""
    catalog = gateway(pulsar)
    await catalog.create("a", 2, {})
    native = {QUOTA: {"limitSize": 5, "policy": "producer_exception"}, THRESHOLD: 7}
    pulsar.policies[NAME] |= native
    await alter(catalog, retention_ms=DAYS_30)
    assert native.items() <= pulsar.policies[NAME].items()


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"policies":["x"],"changed":{}}', '{"policies":[],"changed":[1]}'])
async def test_a_property_that_is_no_change(pulsar: FakeTopics, value: str) -> None:
    catalog = gateway(pulsar)
    await catalog.create("a", 2, {})
    pulsar.properties[NAME][PENDING_PREFIX + "x"] = value
    assert await catalog.get("a", fresh=True) is not None
    await all_done()


async def test_a_quota_that_is_refused_is_no_harm(pulsar: FakeTopics) -> None:
    pulsar.refused[QUOTA] = lambda value: True
    catalog = gateway(pulsar)
    await catalog.create("a", 2, {"retention.bytes": "5000000"})
    assert (pending(pulsar), QUOTA in pulsar.policies[NAME]) == ([], False)


async def test_compaction_that_another_gateway_turns_on_again(pulsar: FakeTopics) -> None:
    """While this gateway deletes the compaction's cursors: the broker creates them again when the policy is set."""
    mine, other = gateway(pulsar), gateway(pulsar)
    await mine.create("a", 2, {"cleanup.policy": "compact"})
    at: list[str] = []

    async def before(method: str, topic: str) -> None:
        at.append(method)
        if at.count("delete_subscription") == 1 and method == "delete_subscription":
            await alter(other, cleanup_policy="compact")

    pulsar.before = before
    await alter(mine, cleanup_policy="delete")
    last_dropped = len(at) - 1 - at[::-1].index("delete_subscription")
    assert "set_policy" in at[last_dropped:]
    assert is_applied(pulsar)
