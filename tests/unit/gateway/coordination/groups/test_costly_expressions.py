"""Regular expressions of groups that take long or are refused: what other groups notice, and what is kept."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Collection
from typing import cast

import pytest
from structlog.testing import capture_logs

from coordinator.topic_regex import InvalidRegexError, Matches, matcher
from gateway.coordination import expressions
from gateway.coordination.expressions import CostlyRegexError, Expression
from gateway.coordination.groups import matched_topics
from gateway.coordination.groups.subscribed_topics import SubscribedTopics, Subscriptions
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from tests.unit.gateway.coordination.groups.followed_topics import TIMEOUT_S, FakeCatalog, Follower, Matching

COSTLY = "t.*"


class Request:
    """What the caller holds while it waits."""


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """COSTLY may not be matched at all."""

    def refuse(regex: str) -> Matches:
        if regex == COSTLY:
            raise CostlyRegexError("it takes an hour to match one name")
        return matcher(regex)

    monkeypatch.setattr(expressions, "matcher", refuse)


@pytest.mark.usefixtures("costly")
async def test_nothing_is_kept_of_requests_that_name_a_refused_expression() -> None:
    """An exception that is raised again keeps the frames through which it was raised before, and so the requests."""
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(t=1)))
    kept: list[weakref.ref[Request]] = []

    async def ask() -> None:
        request = Request()
        kept.append(weakref.ref(request))
        await topics.learn((), COSTLY)

    for _ in range(3):
        with pytest.raises(InvalidRegexError, match="an hour"):
            await ask()
    async with asyncio.timeout(TIMEOUT_S):
        while any(request() is not None for request in kept):
            await asyncio.sleep(0.001)  # the thread still holds what it did last
            gc.collect()


async def test_groups_that_name_their_topics_do_not_wait_for_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    matching, may_go_on = Matching(monkeypatch), threading.Event()
    matching.while_matching = lambda: may_go_on.wait(TIMEOUT_S)
    catalog = FakeCatalog(t=1)
    try:
        async with Follower(catalog, "orders", regexes=["t.*"]).running() as follower:
            async with asyncio.timeout(TIMEOUT_S):
                while not matching.threads:
                    await asyncio.sleep(0.001)
            catalog.change("orders", 1)
            await follower.told_of("orders")
            assert follower.topics.matching("t.*") is None
            may_go_on.set()
            await follower.until_matched("t.*", "t")
    finally:
        may_go_on.set()


async def test_groups_that_name_their_topics_do_not_wait_for_topics_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, may_answer, asked = FakeCatalog(t=1), asyncio.Event(), asyncio.Event()
    look_up = catalog.get

    async def get(name: str) -> Topic | None:
        if name == "t":
            asked.set()
            await may_answer.wait()
        return await look_up(name)

    async with Follower(catalog, "orders", regexes=["t.*"]).running() as follower:
        await follower.until_matched("t.*", "t")
        monkeypatch.setattr(catalog, "get", get)
        catalog.seen.discard("t")
        catalog.change("orders", 1)
        await follower.told_of("orders")
        await asyncio.wait_for(asked.wait(), TIMEOUT_S)
        may_answer.set()


async def test_an_expression_does_not_wait_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, match = asyncio.Event(), Expression.matching

    async def match_late(expression: Expression, names: Collection[str]) -> frozenset[str]:
        if expression._regex == COSTLY:
            await may_end.wait()
        return await match(expression, names)

    monkeypatch.setattr(Expression, "matching", match_late)
    catalog = FakeCatalog(t=1)
    async with Follower(catalog, regexes=[COSTLY, "u.*"]).running() as follower:
        await follower.until_matched("u.*")
        for number in range(3):
            catalog.change(f"u{number}", 1)
            await follower.until_matched("u.*", *(f"u{each}" for each in range(number + 1)))
        assert follower.topics.matching(COSTLY) is None
        may_end.set()
        await follower.until_matched(COSTLY, "t")


async def test_a_group_keeps_its_topics_when_its_expression_is_given_up(costly: None) -> None:
    with capture_logs() as logs:
        async with Follower(FakeCatalog(t=1, u=1), regexes=[COSTLY, "u"], max_age_s=0.0).running() as follower:
            await follower.until_matched("u", "u")
            for number in range(3):
                follower.catalog.change(f"u{number}", 1)
                await follower.told_of(f"u{number}")
            assert follower.topics.matching(COSTLY) is None, "the group then keeps what it has"
    assert [(log["regex"], log["reason"]) for log in logs if "regex" in log] == [
        (COSTLY, "it takes an hour to match one name")
    ]


async def test_what_was_given_up_is_not_tried_again_for_a_while(costly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(t=1)))
    with pytest.raises(CostlyRegexError):
        await topics.learn([], COSTLY)
    matching = Matching(monkeypatch)  # now it costs nothing
    assert not topics.knows([], COSTLY)
    with pytest.raises(InvalidRegexError):
        await topics.learn([], COSTLY)
    assert not matching.names
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(t=1)))
    assert await topics.learn([], COSTLY) == {"t"}, "only where it was too costly"
    monkeypatch.setattr(matched_topics, "RETRY_S", 0.0)
    topics._matched.refuse(COSTLY, CostlyRegexError(""))
    assert await topics.learn([], COSTLY) == {"t"}


async def test_a_loaded_expression_that_is_refused_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """As groups may have from an earlier version: it had no limits."""
    regex = "t" * 30_000
    with capture_logs() as logs:
        async with Follower(FakeCatalog(u=1), regexes=[regex]).running() as follower:
            async with asyncio.timeout(TIMEOUT_S):
                while not any("regex" in log for log in logs):
                    await asyncio.sleep(0.001)
            follower.subscriptions = Subscriptions([], [regex, "u"])
            follower.topics.topic_changed("nothing")
            await follower.until_matched("u", "u")
            assert follower.topics.matching(regex) is None
    assert len([log for log in logs if "regex" in log]) == 1


async def test_refusals_are_forgotten_when_there_are_many(costly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_topics, "MAX_REFUSED", 2)
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog()))
    for regex in ("a", "b", "c"):
        topics._matched.refuse(regex, InvalidRegexError(""))
    assert [regex for regex in "abc" if topics._matched.is_refused(regex)] == ["b", "c"]


async def test_members_that_need_the_same_expression_share_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    matching = Matching(monkeypatch)
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(t=1, u=1)))
    learned = await asyncio.gather(*(topics.learn([], "t") for _ in range(10)))
    assert learned == [{"t"}] * 10
    assert len(matching.names) == 2


async def test_an_invalid_expression_asks_nothing_of_pulsar() -> None:
    catalog = FakeCatalog(t=1)
    catalog.away = True
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    with capture_logs() as logs, pytest.raises(InvalidRegexError):
        await topics.learn([], "(")
    assert not logs, "no listing has failed"


async def test_unsubscribed_expressions_are_kept_by_what_they_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_topics, "MAX_UNSUBSCRIBED_NAMES", 10)
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(**{f"t{number}": 1 for number in range(8)})))
    regexes = ["t[0-4]", "t[5-9]", "t.", "t.*", "t0", "t1"]
    kept = []
    for regex in regexes:
        await topics.learn([], regex)
        kept.append([each for each in regexes if topics.knows([], each)])
    assert kept == [
        ["t[0-4]"], ["t[0-4]", "t[5-9]"], ["t."], ["t.*"], ["t.*", "t0"], ["t.*", "t0", "t1"],
    ]  # fmt: skip
    monkeypatch.setattr(matched_topics, "MAX_UNSUBSCRIBED_NAMES", 0)
    await topics.learn([], "t.|x")
    assert topics.knows([], "t.|x"), "the request that asked for it reads it"
    assert not any(topics.knows([], regex) for regex in regexes)


async def test_topics_that_come_while_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the groups were told in between."""
    catalog = FakeCatalog(t=1)
    is_listing, may_list = asyncio.Event(), asyncio.Event()
    listed = catalog.list_names

    async def list_late() -> set[str]:
        names = await listed()
        is_listing.set()
        await may_list.wait()
        return names

    monkeypatch.setattr(catalog, "list_names", list_late)
    async with Follower(catalog, regexes=["t.*"]).running() as follower:
        await asyncio.wait_for(is_listing.wait(), TIMEOUT_S)
        catalog.change("tt", 1)
        await follower.told_of("tt")
        may_list.set()
        await follower.until_matched("t.*", "t", "tt")


async def test_what_all_expressions_match_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would keep the names of all topics. Those that match the same ones share them."""
    monkeypatch.setattr(matched_topics, "MAX_NAMES", 12)
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(**{f"t{number}": 1 for number in range(8)})))
    topics._subscribed = ["t[0-7]", ".*", "t[1-4]", "t[0-4]", "t.*"]
    for regex in ("t[0-7]", ".*", "t[1-4]"):
        await topics.learn([], regex)
    with pytest.raises(InvalidRegexError, match="too many topics together"):
        await topics.learn([], "t[0-4]")
    await topics.learn([], "t.*")
    assert topics.matching("t.*") is topics.matching(".*") is topics.matching("t[0-7]")
    assert topics.matching("t[0-4]") is None
    topics._subscribed = ["t[1-4]"]
    await topics.learn([], "t[0-4]")
    assert topics.matching("t[0-4]") == frozenset(f"t{number}" for number in range(5))
