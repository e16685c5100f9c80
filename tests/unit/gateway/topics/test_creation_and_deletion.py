"""Creating and deleting topics, and adding partitions: what is left after failures, and at the same time as others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.errors import KafkaError, error_code
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError
from gateway.topics import catalog
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.topics.catalog_scene import Scene


@pytest.mark.parametrize("refused", [False, True])
async def test_a_topic_does_not_exist_while_pulsar_deletes_it(scene: Scene, refused: bool) -> None:
    """And it exists again, if Pulsar does not delete it; an earlier lookup does not bring it back."""
    scene.pulsar.may_delete.clear()
    scene.pulsar.refuses_deletion = refused
    topic = scene.catalog.cached("a")
    assert topic is not None
    looked_up = asyncio.create_task(scene.catalog.get("a", fresh=True))
    await asyncio.sleep(0)
    deleting = asyncio.create_task(scene.catalog.delete(topic))
    assert await looked_up is None
    assert scene.catalog.cached("a") is None
    assert await scene.catalog.get("a", fresh=True) is None
    scene.pulsar.may_delete.set()
    if refused:
        with pytest.raises(AdminError):
            await deleting
    else:
        await deleting
    assert (await scene.catalog.get("a") is not None) == refused


async def test_partitions_that_are_added_at_the_same_time(scene: Scene) -> None:
    """Pulsar would take away those of the request that ends first."""
    topic = scene.catalog.cached("a")
    assert topic is not None
    one, other = await asyncio.gather(
        scene.catalog.add_partitions(topic, 6), scene.catalog.add_partitions(topic, 4), return_exceptions=True
    )
    assert (one, scene.pulsar.partitions) == (None, 6)
    assert isinstance(other, KafkaError)
    assert other.code == ErrorCode.INVALID_PARTITIONS


async def test_no_partition_is_left_of_a_topic_that_is_deleted_meanwhile(scene: Scene) -> None:
    topic = scene.catalog.cached("a")
    assert topic is not None
    deletions: list[asyncio.Task[None]] = []

    async def deleted_meanwhile(method: str, name: str) -> None:
        if method == "update_partitions":
            deletions.append(asyncio.create_task(scene.catalog.delete(topic)))
        for _ in range(10):
            await asyncio.sleep(0)

    scene.pulsar.before = deleted_meanwhile
    await scene.catalog.add_partitions(topic, 4)
    await asyncio.gather(*deletions)
    assert (scene.pulsar.properties, scene.pulsar.left) == ({}, [])


async def test_a_second_deletion_does_not_take_the_next_topic(scene: Scene) -> None:
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.may_delete.clear()
    first, second = (asyncio.create_task(scene.catalog.delete(topic)) for _ in range(2))
    while not scene.pulsar.requests["delete_partitioned forced"]:
        await asyncio.sleep(0)
    deleting, scene.pulsar.before = scene.pulsar.before, _create_again(scene)
    scene.pulsar.may_delete.set()
    await asyncio.gather(first, second)
    scene.pulsar.before = deleting
    assert scene.pulsar.requests["delete_partitioned forced"] == 1
    assert scene.stored == {"made by": "another gateway"}


async def test_a_topic_does_not_exist_while_a_second_request_deletes_it(scene: Scene) -> None:
    """After Pulsar has refused the first one: clients that find it open its partitions again."""
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.may_delete.clear()
    scene.pulsar.refuses_deletion = True
    first, second = (asyncio.create_task(scene.catalog.delete(topic)) for _ in range(2))
    await let_callbacks_run()
    scene.pulsar.may_delete.set()
    with pytest.raises(AdminError):
        await first
    scene.pulsar.may_delete.clear()
    scene.pulsar.refuses_deletion = False
    await let_callbacks_run()
    assert not second.done() and await scene.catalog.get("a", fresh=True) is None
    scene.pulsar.may_delete.set()
    await second
    assert not scene.pulsar.properties


def _create_again(scene: Scene) -> Callable[[str, str], Awaitable[None]]:
    async def before(method: str, topic: str) -> None:
        scene.pulsar.properties.setdefault(topic, {"made by": "another gateway"})

    return before


async def test_partitions_that_are_left_of_a_deleted_topic_do_not_block_its_name(scene: Scene) -> None:
    scene.pulsar.left = ["persistent://t/n/b-partition-5", "persistent://t/n/bb-partition-1"]
    topic = await scene.catalog.create("b", 2, {})
    assert topic.name == "b"
    assert scene.pulsar.left == ["persistent://t/n/bb-partition-1"]


async def test_partitions_with_data_are_kept(scene: Scene) -> None:
    scene.pulsar.left = ["persistent://t/n/b-partition-5"]
    scene.pulsar.entries = 1
    with pytest.raises(KafkaError) as raised:
        await scene.catalog.create("b", 2, {})
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert scene.pulsar.left


async def test_partitions_of_a_topic_that_another_gateway_creates_are_kept(scene: Scene) -> None:
    """The topic did not exist when Pulsar was asked first."""

    async def created(method: str, topic: str) -> None:
        if method == "internal_stats":
            scene.pulsar.properties["persistent://t/n/b"] = {}

    scene.pulsar.left, scene.pulsar.before = ["persistent://t/n/b-partition-0"], created
    with pytest.raises(KafkaError) as raised:
        await scene.catalog.create("b", 2, {})
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert scene.pulsar.left


async def test_partitions_whose_addition_was_interrupted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulsar would refuse to add others for ever."""
    monkeypatch.setattr(catalog, "OTHERS_ARE_DONE_S", 0)
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.left = ["persistent://t/n/a-partition-3"]
    await scene.catalog.add_partitions(topic, 4)
    assert (scene.pulsar.partitions, scene.pulsar.left) == (4, [])


async def test_partitions_without_all_of_their_subscriptions(scene: Scene) -> None:
    async def added(method: str, name: str) -> None:
        if method == "update_partitions":
            scene.pulsar.partitions = 4
            raise AdminError(412, "Failed for Subscription Busy")

    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.before = added
    before: list[int] = []

    async def when_added(topic: Topic) -> None:
        before.append(topic.partitions)

    await scene.catalog.add_partitions(topic, 4, when_added)
    assert before == [2]
    topic = scene.catalog.cached("a")
    assert topic is not None
    assert topic.partitions == 4


async def test_clients_that_open_partitions_of_a_topic_that_is_being_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another attempt, the topic would exist, but some of its partitions would not."""
    monkeypatch.setattr(catalog, "FIRST_PAUSE_S", 0)
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.clients = 3
    await scene.catalog.delete(topic)
    assert scene.pulsar.properties == {}


async def test_clients_that_always_open_partitions_of_a_topic_that_is_being_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CHANGE_TIMEOUT_S", 0)
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.clients = 1000
    with pytest.raises(PulsarError) as raised:
        await scene.catalog.delete(topic)
    assert error_code(raised.value) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the client tries again"


async def test_nothing_waits_for_a_deletion(scene: Scene) -> None:
    """Pulsar may need long for it, or be away."""
    topic = scene.catalog.cached("a")
    assert topic is not None
    scene.pulsar.may_delete.clear()
    deleting = asyncio.create_task(scene.catalog.delete(topic))
    while not scene.pulsar.requests["delete_partitioned forced"]:
        await asyncio.sleep(0)
    changes = (
        (scene.catalog.create("a", 2, {}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (scene.catalog.add_partitions(topic, 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (scene.alter(retention_ms="60000"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (scene.catalog.begin_transactions("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
    for change, code in changes:
        with pytest.raises(KafkaError) as raised:
            await change
        assert raised.value.code == code
    scene.pulsar.may_delete.set()
    await deleting
    assert await scene.catalog.create("a", 2, {})


async def test_pulsar_deletes_a_topic_when_nothing_is_written_to_it(scene: Scene) -> None:
    topic = scene.catalog.cached("a")
    assert topic is not None

    async def when_hidden() -> None:
        assert await scene.catalog.get("a") is None
        assert scene.pulsar.properties

    await scene.catalog.delete(topic, when_hidden)
    assert not scene.pulsar.properties


async def test_cursors_that_are_left_of_a_deleted_topic(scene: Scene) -> None:
    """Pulsar lists their partition, but finds nothing to delete."""

    async def no_ledger(method: str, topic: str) -> None:
        if method == "internal_stats":
            raise AdminError(404, "Partitioned Topic not found")

    scene.pulsar.left, scene.pulsar.before = ["persistent://t/n/b-partition-0"], no_ledger
    with pytest.raises(KafkaError) as raised:
        await scene.catalog.create("b", 2, {})
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_that_two_clients_create_exists_when_the_second_is_refused(scene: Scene) -> None:
    """Clients that create topics on first use would otherwise read that there is none."""

    async def slow(method: str, name: str) -> None:
        for _ in range(100 if method == "create_partitioned" else 1):
            await asyncio.sleep(0)

    async def second() -> Topic | None:
        with pytest.raises(KafkaError) as raised:
            await scene.catalog.create("b", 2, {})
        assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        return await scene.catalog.get("b")

    scene.pulsar.before = slow
    first, found = await asyncio.gather(scene.catalog.create("b", 2, {}), second())
    assert found is not None
    assert found.topic_id == first.topic_id
