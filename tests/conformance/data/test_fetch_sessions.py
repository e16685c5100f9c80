"""Fetch sessions (KIP-227), Fetch v7 to v17: only changes are sent."""

from __future__ import annotations

import time

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.fetching import END, LONG_WAIT_MS, filled, named
from tests.conformance.records import batch, records
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields

VERSIONS = range(7, 18)
FIRST_WITH_TOPIC_IDS = 13
SHORT_WAIT_MS = 500
PATIENCE_S = 60.0
NEW = (0, 0)


class Session:
    """A full fetch of a filled topic that creates a session, and the incremental fetches after it."""

    def __init__(self, conversation: Conversation, version: int, offset: int = END) -> None:
        filled(conversation)
        self._conversation = conversation
        self._version = version
        topics = [named(conversation, version, "fetch", self.partitions({0: offset, 1: 0}))]
        answer = conversation.call("Fetch", version, **fetch_fields(version, topics, session=NEW))
        self.id: int = answer["session_id"]

    def partitions(self, offsets: dict[int, int]) -> list[dict[str, int]]:
        return [fetch_partition(self._version, index, offset) for index, offset in offsets.items()]

    def ask(
        self,
        epoch: int,
        offsets: dict[int, int] | None = None,
        forget: list[int] | None = None,
        session_id: int | None = None,
        version: int | None = None,
    ) -> None:
        version, talk = version or self._version, self._conversation
        topics = [named(talk, version, "fetch", self.partitions(offsets))] if offsets else []
        forgotten = [named(talk, version, "fetch", [])] if forget else []
        for topic in forgotten:
            topic["partitions"] = list(forget or [])
        chosen = self.id if session_id is None else session_id
        fields = fetch_fields(version, topics, session=(chosen, epoch), forgotten=forgotten)
        talk.call("Fetch", version, **fields)


@case("Fetch", VERSIONS)
def test_full_fetch_opens_a_session(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    conversation.say(session.id != 0)


@case("Fetch", VERSIONS)
def test_incremental_fetch_without_news_is_empty(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1)
    session.ask(2)


@case("Fetch", VERSIONS)
def test_data_already_sent_comes_again_until_the_offset_moves(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version, offset=END - 5)
    session.ask(1)
    session.ask(2, {0: END})
    session.ask(3)


@case("Fetch", VERSIONS)
def test_changed_offset(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1, {0: 10})
    session.ask(2, {0: END})


@case("Fetch", VERSIONS)
def test_forgotten_partition(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version, offset=0)
    session.ask(1, forget=[0])
    session.ask(2, forget=[0, 7])


@case("Fetch", VERSIONS)
def test_partition_added_later(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1, forget=[0])
    session.ask(2, {0: END - 1})


@case("Fetch", VERSIONS)
def test_a_session_of_forgotten_partitions_ends(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version, offset=0)
    session.ask(1, forget=[0, 1])
    session.ask(2)


@case("Fetch", VERSIONS)
def test_partitions_named_and_forgotten_at_once_end_the_session(conversation: Conversation, version: int) -> None:
    """What the request names is answered all the same."""
    session = Session(conversation, version)
    session.ask(1, {0: 0}, forget=[0, 1])
    session.ask(2)


@case("Fetch", VERSIONS)
def test_a_session_that_began_without_partitions_ends(conversation: Conversation, version: int) -> None:
    opening = fetch_fields(version, [], session=NEW)
    session_id = conversation.call("Fetch", version, **opening)["session_id"]
    for epoch in (7, 7, 1, 1):  # a fast path of the gateway learns from the first two
        conversation.call("Fetch", version, **fetch_fields(version, [], session=(session_id, epoch)))


@case("Fetch", VERSIONS)
def test_partitions_with_records_go_behind_those_without(conversation: Conversation, version: int) -> None:
    """An error is no records: with room for one batch, the partition has its turn when the error is gone."""
    filled(conversation, name="fetch-turns")
    session = Session(conversation, version, offset=0)
    others = [named(conversation, version, "fetch-turns", session.partitions({0: offset})) for offset in (-1, 0)]
    for epoch, topics in ((1, others[:1]), (2, others[1:]), (3, []), (4, [])):
        fields = fetch_fields(version, topics, max_bytes=1, session=(session.id, epoch))
        conversation.call("Fetch", version, **fields)


@case("Fetch", range(12, 18))
def test_diverging_in_a_session(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    beyond = fetch_partition(version, 0, END + 1, last_fetched_epoch=0)
    for epoch, topics in ((1, [named(conversation, version, "fetch", [beyond])]), (2, [])):
        fields = fetch_fields(version, topics, session=(session.id, epoch), max_wait_ms=LONG_WAIT_MS)
        conversation.call("Fetch", version, **fields)


@case("Fetch", [12, 13, 17])
def test_a_session_with_topic_ids_or_names_stays_so(conversation: Conversation, version: int) -> None:
    """Clients go back to names when their metadata was lost (KIP-516)."""
    session = Session(conversation, version)
    other = FIRST_WITH_TOPIC_IDS - 1 if version >= FIRST_WITH_TOPIC_IDS else FIRST_WITH_TOPIC_IDS
    session.ask(1, {0: 0}, version=other)
    session.ask(1, {0: 0})
    session.ask(2, version=other)
    session.ask(0, {0: END}, version=other)


@case("Fetch", VERSIONS)
def test_unknown_partition_in_a_session(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1, {5: 0})
    session.ask(2)


@case("Fetch", VERSIONS)
def test_out_of_range_in_a_session(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1, {0: END + 1})
    session.ask(2)
    session.ask(3, {0: END})


@case("Fetch", VERSIONS)
@pytest.mark.parametrize("epoch", [2, 5, 2**31 - 1, -2])
def test_wrong_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    session = Session(conversation, version)
    session.ask(epoch)
    session.ask(1)


@case("Fetch", VERSIONS)
def test_epoch_used_twice(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1)
    session.ask(1)


@case("Fetch", [7, 12, 17])
def test_a_second_connection_continues_while_the_first_one_waits(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1)
    other = conversation.connect()
    waiting = fetch_fields(version, [], session=(session.id, 2), max_wait_ms=SHORT_WAIT_MS, min_bytes=1)
    first = conversation.client.send("Fetch", version, **waiting)
    later = fetch_fields(version, [], session=(session.id, 3))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:  # the server may read the later request first
        answer = other.call("Fetch", version, **later)
        if not answer["error_code"]:
            break
    conversation.say(answer["error_code"])
    conversation.receive("Fetch", version, first)
    session.ask(4)


@case("Fetch", VERSIONS)
@pytest.mark.parametrize("epoch", [1, 7])
def test_unknown_session(conversation: Conversation, version: int, epoch: int) -> None:
    session = Session(conversation, version)
    session.ask(epoch, session_id=session.id ^ 0x55555555)


@case("Fetch", VERSIONS)
def test_session_id_0_with_an_epoch(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(1, {0: 0}, session_id=0)


@case("Fetch", VERSIONS)
def test_close(conversation: Conversation, version: int) -> None:
    """Epoch -1 closes the session, and the request is answered as a fetch without a session."""
    session = Session(conversation, version)
    session.ask(-1, {0: 0})
    session.ask(1)


@case("Fetch", VERSIONS)
def test_new_session_in_place_of_the_old(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    session.ask(0, {0: END, 1: 0})
    session.ask(1)


@case("Fetch", VERSIONS)
def test_full_fetch_of_nothing(conversation: Conversation, version: int) -> None:
    conversation.call("Fetch", version, **fetch_fields(version, [], session=NEW))


@case("Fetch", VERSIONS)
def test_session_used_on_another_connection(conversation: Conversation, version: int) -> None:
    session = Session(conversation, version)
    other = conversation.connect()
    asked = other.send("Fetch", version, **fetch_fields(version, [], session=(session.id, 1)))
    conversation.receive("Fetch", version, asked, other)


@case("Fetch", VERSIONS)
def test_woken_by_a_produce(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("fetch-wake")
    conversation.start_here(topic)
    here = conversation.names.start_offset
    topics = [named(conversation, version, "fetch-wake", [fetch_partition(version, 0, here)])]
    answer = conversation.call("Fetch", version, **fetch_fields(version, topics, session=NEW))
    waiting = fetch_fields(version, [], session=(answer["session_id"], 1), max_wait_ms=LONG_WAIT_MS, min_bytes=1)
    asked = conversation.client.send("Fetch", version, **waiting)
    conversation.connect().call("Produce", 9, **produce_fields(9, {topic: {0: batch(records(1))}}))
    conversation.receive("Fetch", version, asked)
    woken = conversation.answers[-1]["Fetch"]["responses"][0]["partitions"][0]
    for lagging in ("high_watermark", "last_stable_offset"):  # they may lag behind the records
        del woken[lagging]
