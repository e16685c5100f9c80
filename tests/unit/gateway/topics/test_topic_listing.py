"""One listing for all callers. When Pulsar does not answer, the previous listing is used, and no caller waits long."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from gateway.errors import KafkaError
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import MAX_PARALLEL_REQUESTS, TopicListener
from gateway.topics.topic import TOPIC_ID
from gateway.topics.topic_listing import TopicListing
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

MANY = 200


def new_catalog(pulsar: FakeTopics, *, max_age_ms: int = 60_000, timeout_ms: int = 5_000) -> TopicCatalog:
    return TopicCatalog(pulsar.client, "t/n", max_age_ms, timeout_ms=timeout_ms)


@pytest.fixture
def pulsar() -> FakeTopics:
    pulsar = FakeTopics()
    for number in range(MANY):
        pulsar.properties[f"{PREFIX}t{number:03}"] = {}
    return pulsar


def names(pulsar: FakeTopics) -> list[str]:
    return sorted(name.removeprefix(PREFIX) for name in pulsar.properties)


async def fail(method: str, topic: str) -> None:
    await asyncio.sleep(0)
    raise AdminError(503, "not now")


async def hang(method: str, topic: str) -> None:
    await asyncio.Event().wait()


async def test_many_who_ask_at_once_share_one_listing(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar)
    at_once = most = 0

    async def before(method: str, topic: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    pulsar.before = before
    listings = await asyncio.gather(*(catalog.all() for _ in range(50)))
    for topics, unknown in listings:
        assert ([topic.name for topic in topics], unknown) == (names(pulsar), [])
    assert pulsar.requests == {"list_partitioned": 1, "list_topics": 1, "partitioned": MANY}
    assert most <= MAX_PARALLEL_REQUESTS


async def test_unknown_ids_share_it_too(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar)
    wanted = uuid.uuid4()
    pulsar.properties[PREFIX + "t007"] = {TOPIC_ID: str(wanted)}
    found = await asyncio.gather(*(catalog.get_by_id(uuid.uuid4()) for _ in range(50)), catalog.get_by_id(wanted))
    assert [topic.name for topic in found if topic is not None] == ["t007"]
    assert pulsar.requests["list_topics"] == 1


@pytest.mark.parametrize("trouble", [fail, hang])
async def test_without_an_answer_topics_are_as_they_were(pulsar: FakeTopics, trouble: object) -> None:
    catalog = new_catalog(pulsar, max_age_ms=0, timeout_ms=10)
    pulsar.before, usual = trouble, pulsar.before  # type: ignore[assignment]
    with pytest.raises(PulsarError):
        await catalog.all()
    with pytest.raises(PulsarError):
        await catalog.list_names()
    await catalog.close()
    pulsar.before = usual
    catalog = new_catalog(pulsar, max_age_ms=0, timeout_ms=5_000)
    await catalog.all()
    pulsar.before = trouble  # type: ignore[assignment]
    catalog._timeout_s = catalog._listing._timeout_s = 0.01
    for _ in range(3):
        topics, unknown = await catalog.all()
        assert ([topic.name for topic in topics], unknown) == (names(pulsar), [])
    await catalog.close()


async def test_others_are_not_kept_waiting_for_what_fails(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar, max_age_ms=0)
    await catalog.all()
    await catalog.close()
    catalog.max_age_s = catalog._listing._max_age_s = 60
    catalog._renewed_at = float("-inf")
    catalog._timeout_s = catalog._listing._timeout_s = 0.01
    pulsar.before = hang
    await catalog.all()
    pulsar.requests.clear()
    await catalog.all()
    assert not pulsar.requests
    await catalog.close()


async def test_one_topic_that_fails_is_named(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar, max_age_ms=0)

    async def before(method: str, topic: str) -> None:
        await asyncio.sleep(0)
        if topic.endswith("t003"):
            raise AdminError(503, "not now")

    usual, pulsar.before = pulsar.before, before
    topics, unknown = await catalog.all()
    assert ([topic.name for topic in topics], unknown) == ([name for name in names(pulsar) if name != "t003"], ["t003"])
    pulsar.before = usual
    assert (await catalog.all()).unknown == []
    await catalog.close()


async def test_a_lookup_ends_in_time(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar, timeout_ms=10)
    pulsar.before = hang
    with pytest.raises(RequestTimeoutError):
        await catalog.get("t001")
    await catalog.close()


async def test_a_listing_under_way_does_not_undo_what_happens_here(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar, max_age_ms=0)
    topic = await catalog.get("t005")
    assert topic is not None
    listed, answer = asyncio.Event(), asyncio.Event()

    async def slow_listing(namespace: str) -> list[str]:
        found = list(pulsar.properties)
        listed.set()
        await answer.wait()
        return found

    pulsar.list_partitioned = slow_listing  # type: ignore[method-assign]
    everything = asyncio.create_task(catalog.all())
    await listed.wait()
    pulsar.policies[topic.pulsar_name] = {}
    await catalog.delete(topic)
    creating = asyncio.create_task(catalog.create("new", 2, {}))  # this requests names, too
    await asyncio.sleep(0)
    answer.set()
    await creating
    assert "t005" not in {topic.name for topic in (await everything).topics}
    assert "new" in await catalog.list_names()
    await catalog.close()


@pytest.mark.parametrize("name", ["t_1", "t.1"])
async def test_names_collide_with_topics_that_were_never_looked_up(pulsar: FakeTopics, name: str) -> None:
    pulsar.properties[PREFIX + ("t.1" if name == "t_1" else "t_1")] = {}
    with pytest.raises(KafkaError, match="collides") as raised:
        await new_catalog(pulsar).create(name, 1, {})
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def heard_gone(catalog: TopicCatalog) -> list[str]:
    """The names in a listener's calls."""
    gone: list[str] = []

    class Listener(TopicListener):
        def topic_gone(self, name: str) -> None:
            gone.append(name)

    catalog.subscribe(Listener())
    return gone


@pytest.mark.parametrize("again", [True, False])
async def test_a_topic_that_others_deleted(pulsar: FakeTopics, again: bool) -> None:
    """Or created again: its logs are closed, and the old id is unknown."""
    catalog = new_catalog(pulsar)
    gone = heard_gone(catalog)
    pulsar.properties[PREFIX + "t001"] = {TOPIC_ID: str(uuid.uuid4())}
    before = await catalog.get("t001")
    assert before is not None
    await catalog.get("t001", fresh=True)
    assert gone == []
    del pulsar.properties[PREFIX + "t001"]
    if again:
        pulsar.properties[PREFIX + "t001"] = {TOPIC_ID: str(uuid.uuid4())}
    after = await catalog.get("t001", fresh=True)
    assert (after is not None) == again
    assert gone == ["t001"]
    assert catalog.cached_name(before.topic_id) is None
    if after is not None:
        assert catalog.cached_name(after.topic_id) == "t001"


async def test_what_this_gateway_makes_is_not_undone_by_an_older_lookup(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar)
    asked, answer = asyncio.Event(), asyncio.Event()
    gone = heard_gone(catalog)
    await catalog.all()

    async def before(method: str, topic: str) -> None:
        if method == "partitioned" and not asked.is_set():
            asked.set()
            await answer.wait()
            raise AdminError(404, "no such topic")
        await asyncio.sleep(0)

    pulsar.before = before
    looking = asyncio.create_task(catalog.get("new"))
    await asked.wait()
    created = await catalog._create("new", 2, {})
    answer.set()
    assert await looking == created
    assert gone == []


async def test_a_topic_that_was_made_anew_outlives_late_news_of_the_one_before(pulsar: FakeTopics) -> None:
    catalog = new_catalog(pulsar)
    old, new = uuid.uuid4(), uuid.uuid4()
    pulsar.properties[PREFIX + "t007"] = {TOPIC_ID: str(new)}
    await catalog.get("t007")
    assert not catalog.forget("t007", old.bytes)
    assert catalog.cached("t007") is not None
    assert catalog.forget("t007", new.bytes)
    assert catalog.cached("t007") is None
    await catalog.get("t007")
    assert catalog.forget("t007", b""), "an older gateway does not say which"


async def test_a_caller_in_the_turn_in_which_the_first_listing_ends_gets_it(pulsar: FakeTopics) -> None:
    """The listing has ended, and callbacks of its task have not run yet."""
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listing = TopicListing(pulsar.client, "t/n", "t/system", max_age_s=60, timeout_s=5)

    async def before(method: str, topic: str) -> None:
        if pulsar.requests["list_partitioned"] == 2:  # the last request of a listing
            await answered

    pulsar.before = before
    first = asyncio.create_task(listing.names())
    async with asyncio.timeout(5):
        while pulsar.requests["list_partitioned"] < 2:
            await asyncio.sleep(0.01)
    answered.set_result(None)  # the listing continues in the next turn
    second = asyncio.create_task(listing.names())
    assert len(await second) == MANY
    assert await first == await second
    assert pulsar.requests["list_topics"] == 1
