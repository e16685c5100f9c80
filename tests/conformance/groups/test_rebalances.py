"""Groups of several members: rebalances, static members, fencing, requests with an old generation.

Member ids are random and responses list members in any order, so each case records what does not depend on them.
"""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.conversation import Conversation, case
from tests.conformance.groups.test_groups import METADATA, new_group
from tests.support.raw_client import RawClient

REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
REQUIRED_SINCE, STATIC_SINCE, SYNC_LAST, BEAT_LAST, LEAVE_LAST = 4, 5, 5, 4, 5
COMMIT_VERSION = 7
PATIENCE_S = 60.0
SHARE = b"\x00\x01\xff\xff not an assignment"


class Member:
    """One member on a connection of its own."""

    def __init__(self, conversation: Conversation, version: int, group: str, name: str, instance: str | None = None):
        self.conversation = conversation
        self.version = version
        self.group = group
        self.name = name
        self.instance = instance
        self.client: RawClient = conversation.connect()
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.others: list[str] = []
        self.awaited = 0

    def join(self, **changed: Any) -> None:
        self.ask_to_join(**changed)
        self.joined()

    def ask_to_join(
        self, *, protocol: str = "range", protocol_type: str = "consumer", metadata: bytes = METADATA, **changed: Any
    ) -> None:
        """Send the request; the coordinator may delay its response. `protocol` may have several names."""
        fields: dict[str, Any] = {
            "group_id": self.group, "session_timeout_ms": 30_000, "member_id": self.member_id,
            "protocol_type": protocol_type,
            "protocols": [{"name": each, "metadata": metadata} for each in protocol.split()],
        }  # fmt: skip
        if self.version >= 1:
            fields["rebalance_timeout_ms"] = 60_000
        if self.version >= STATIC_SINCE:
            fields["group_instance_id"] = self.instance
        if self.version >= 8:
            fields["reason"] = None
        if self.version >= REQUIRED_SINCE and not self.member_id and self.instance is None:
            answer = self.client.call("JoinGroup", self.version, **fields)
            if answer["error_code"] != MEMBER_ID_REQUIRED:
                self._note("asked for an id", error=answer["error_code"])
                return
            fields["member_id"] = self.member_id = answer["member_id"]
        self.awaited = self.client.send("JoinGroup", self.version, **(fields | changed))

    def joined(self) -> None:
        answer = self.client.receive("JoinGroup", self.version, self.awaited)
        self.member_id = answer["member_id"] or self.member_id
        self.generation = answer["generation_id"]
        self.leads = answer["leader"] == answer["member_id"] != ""
        self.others = [each["member_id"] for each in answer["members"]]
        self._note(
            "joined", error=answer["error_code"], generation=self.generation, leads=self.leads,
            protocol=answer["protocol_name"], type=answer.get("protocol_type"), skips=answer.get("skip_assignment"),
            members=sorted((each.get("group_instance_id") or "", each["metadata"].hex()) for each in answer["members"]),
        )  # fmt: skip

    def sync(self, **changed: Any) -> None:
        self.ask_to_sync(**changed)
        self.synced()

    def ask_to_sync(self, **changed: Any) -> None:
        version = min(self.version, SYNC_LAST)
        shares = [{"member_id": each, "assignment": SHARE} for each in self.others] if self.leads else []
        fields = self._identity(version >= 3) | {"assignments": shares}
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        self.awaited = self.client.send("SyncGroup", version, **(fields | changed))

    def synced(self) -> None:
        answer = self.client.receive("SyncGroup", min(self.version, SYNC_LAST), self.awaited)
        self._note("synced", error=answer["error_code"], assignment=answer["assignment"].hex())

    def beat(self) -> int:
        version = min(self.version, BEAT_LAST)
        return int(self.client.call("Heartbeat", version, **self._identity(version >= 3))["error_code"])

    def hears(self, error: int) -> None:
        """The effect of another member's request may take time."""
        deadline = time.monotonic() + PATIENCE_S
        while (heard := self.beat()) != error and time.monotonic() < deadline:
            time.sleep(0.01)
        self._note("heartbeat", error=heard)

    def beats(self) -> None:
        self._note("heartbeat", error=self.beat())

    def commits(self, topic: str) -> None:
        row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        fields = {
            "group_id": self.group, "generation_id_or_member_epoch": self.generation, "member_id": self.member_id,
            "group_instance_id": self.instance, "topics": [{"name": topic, "partitions": [row]}],
        }  # fmt: skip
        answer = self.client.call("OffsetCommit", COMMIT_VERSION, **fields)
        self._note("committed", error=answer["topics"][0]["partitions"][0]["error_code"])

    def leaves(self, *, by_instance: bool = False) -> None:
        version = min(self.version, LEAVE_LAST)
        if version < 3:
            answer = self.client.call("LeaveGroup", version, group_id=self.group, member_id=self.member_id)
        else:
            member: dict[str, Any] = {"member_id": "" if by_instance else self.member_id}
            member["group_instance_id"] = self.instance
            if version >= 5:
                member["reason"] = None
            answer = self.client.call("LeaveGroup", version, group_id=self.group, members=[member])
        errors = [each["error_code"] for each in answer.get("members") or ()]
        self._note("left", error=answer["error_code"], members=errors)

    def _identity(self, with_instance: bool) -> dict[str, Any]:
        fields = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return fields | ({"group_instance_id": self.instance} if with_instance else {})

    def _note(self, what: str, **facts: Any) -> None:
        self.conversation.say({self.name: what} | facts)


def state_of(conversation: Conversation, group: str) -> None:
    described = conversation.client.call("DescribeGroups", 4, groups=[group], include_authorized_operations=False)
    conversation.say([
        (
            each["group_state"], each["protocol_type"], each["protocol_data"],
            sorted((member["member_metadata"].hex(), member["member_assignment"].hex()) for member in each["members"]),
        )
        for each in described["groups"]
    ])  # fmt: skip


def two_members(conversation: Conversation, version: int) -> tuple[Member, Member]:
    """A stable group whose leader is the first member."""
    group = new_group(conversation)
    first, second = (Member(conversation, version, group, name) for name in ("first", "second"))
    first.join()
    first.sync()
    second.ask_to_join()
    first.hears(REBALANCE_IN_PROGRESS)
    state_of(conversation, group)
    first.join()
    second.joined()
    return first, second


@case("JoinGroup")
def test_a_second_member(conversation: Conversation, version: int) -> None:
    first, second = two_members(conversation, version)
    state_of(conversation, first.group)
    second.ask_to_sync()
    first.sync()
    second.synced()
    first.beats()
    second.beats()
    state_of(conversation, first.group)
    first.leaves()
    second.hears(REBALANCE_IN_PROGRESS)
    second.join()
    second.sync()
    second.leaves()
    state_of(conversation, first.group)


@case("JoinGroup")
def test_what_comes_from_an_old_generation(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("groups")
    first, second = two_members(conversation, version)
    second.ask_to_sync()
    first.sync()
    second.synced()
    second.generation -= 1
    second.beats()
    second.commits(topic)
    second.sync()
    second.generation += 2
    second.beats()
    second.commits(topic)
    second.generation -= 1
    second.commits(topic)
    second.leaves()
    second.beats()
    second.commits(topic)


@case("JoinGroup")
def test_commits_while_the_group_rebalances(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("groups")
    first, second = two_members(conversation, version)
    first.commits(topic)  # the member waits for assignments
    first.beats()
    second.ask_to_sync()
    first.sync()
    second.synced()
    third = Member(conversation, version, first.group, "third")
    third.ask_to_join()
    first.hears(REBALANCE_IN_PROGRESS)
    first.commits(topic)  # the old generation may still commit what it has read
    first.sync()
    first.ask_to_join()
    second.commits(topic)
    second.join()
    first.joined()
    third.joined()


@case("JoinGroup")
def test_protocols_that_do_not_agree(conversation: Conversation, version: int) -> None:
    group = new_group(conversation)
    first = Member(conversation, version, group, "first")
    first.join()
    first.sync()
    for number, (protocol, protocol_type) in enumerate([("other", "consumer"), ("range", "connect"), ("range", "")]):
        stranger = Member(conversation, version, group, f"stranger {number}")
        stranger.ask_to_join(protocol=protocol, protocol_type=protocol_type)
        if stranger.awaited:
            stranger.joined()
    first.beats()
    state_of(conversation, group)


@case("JoinGroup", range(STATIC_SINCE, 10))
def test_static_members(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("groups")
    group = new_group(conversation)
    first, second = (Member(conversation, version, group, name, instance=name) for name in ("first", "second"))
    first.join()
    first.sync()
    second.ask_to_join()
    first.hears(REBALANCE_IN_PROGRESS)
    first.join()
    second.joined()
    second.ask_to_sync()
    first.sync()
    second.synced()
    again = Member(conversation, version, group, "second again", instance="second")
    again.join()  # replaces the old member without a rebalance
    first.beats()
    again.sync()
    second.beats()
    second.commits(topic)
    second.sync()
    second.leaves()
    again.beats()
    again.leaves(by_instance=True)
    first.hears(REBALANCE_IN_PROGRESS)
    state_of(conversation, group)


@case("JoinGroup", (REQUIRED_SINCE, 9))
def test_ids_that_were_asked_for_and_not_used(conversation: Conversation, version: int) -> None:
    group = new_group(conversation)
    fields: dict[str, Any] = {
        "group_id": group, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": METADATA}],
    }  # fmt: skip
    if version >= STATIC_SINCE:
        fields["group_instance_id"] = None
    errors = {conversation.client.call("JoinGroup", version, **fields)["error_code"] for _ in range(1_000)}
    conversation.say(sorted(errors))
    state_of(conversation, group)
