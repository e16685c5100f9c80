"""Sends a group's requests to every gateway of a fleet, all the time, and records the answers of each gateway."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping

from protocol.proxy.header import Endpoint, encode_proxy_header
from tests.support.raw_client import ConnectionClosedError, RawClient
from tests.support.traffic.history import Commit, History, Lookup, Turn

OFFSETS_TOPIC = "__consumer_offsets"
SESSION_TIMEOUT_MS = 600_000
"""The session of the group's only member is longer than every trial."""
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
CALL_TIMEOUT_S = 5.0
PAUSE_S = 0.3
JOIN_TIMEOUT_S = 60.0


class CoordinatorProbe:
    """A group with one member, whose commits and lookups go to all gateways at the same time.

    `gateways` are addresses that lead to one gateway each, by its name. Each gateway has a partition of the topic to
    commit for. Heartbeats would show nothing: like Kafka, a gateway answers them while it loads groups, or does not
    know the coordinator yet.
    """

    def __init__(self, gateways: Mapping[str, str], group: str, topic: str, *, proxied: bool = False) -> None:
        self.group = group
        self._topic = topic
        self._proxied = proxied
        self._turns: list[Turn] = []
        self._commits: list[Commit] = []
        self._lookups: list[Lookup] = []
        self._member = ("", -1)
        self._stopping = threading.Event()
        self._gateways = gateways
        self._threads = [
            threading.Thread(target=self._ask_on, args=(name, address, number), daemon=True)
            for number, (name, address) in enumerate(gateways.items())
        ]

    def __enter__(self) -> CoordinatorProbe:
        self._member = self._join()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * CALL_TIMEOUT_S)

    def add_to(self, history: History) -> None:
        history.turns += self._turns
        history.commits += self._commits
        history.lookups += self._lookups

    @property
    def coordinators(self) -> list[str]:
        """The gateways in the order in which they became coordinator."""
        return [name for name, _ in itertools.groupby(turn.gateway for turn in list(self._turns))]

    def pause_s(self, since: float) -> float:
        """The longest time without a coordinator after that moment, in seconds."""
        times = [since, *(turn.answered for turn in list(self._turns) if turn.answered > since)]
        return max((later - earlier for earlier, later in itertools.pairwise(sorted(times))), default=0.0)

    def _join(self) -> tuple[str, int]:
        """Join at the gateway that coordinates the group. Each call that is given up would leave a member, and the next
        one would wait for that."""
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while time.monotonic() < deadline:
            for address in self._gateways.values():
                try:
                    joined = self._join_at(address)
                except (OSError, ConnectionClosedError):
                    continue
                if joined is not None:
                    return joined
            time.sleep(PAUSE_S)
        raise AssertionError(f"no gateway coordinates {self.group}")

    def _join_at(self, address: str) -> tuple[str, int] | None:
        client = self._connect(address, JOIN_TIMEOUT_S / 2)
        try:
            protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
            joined = client.call(
                "JoinGroup", 3, group_id=self.group, session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=60_000,
                member_id="", protocol_type="consumer", protocols=protocols,
            )  # fmt: skip
            if joined["error_code"] != 0:
                return None
            member_id, generation = str(joined["member_id"]), int(joined["generation_id"])
            synced = client.call(
                "SyncGroup", 2, group_id=self.group, generation_id=generation, member_id=member_id,
                assignments=[{"member_id": member_id, "assignment": b""}],
            )  # fmt: skip
            return (member_id, generation) if synced["error_code"] == 0 else None
        finally:
            client.close()

    def _ask_on(self, name: str, address: str, partition: int) -> None:
        offsets = itertools.count(1)
        while not self._stopping.wait(PAUSE_S):
            try:
                client = self._connect(address)
            except OSError:
                continue
            try:
                while not self._stopping.is_set():
                    self._ask(client, name, partition, next(offsets))
                    self._stopping.wait(PAUSE_S)
            except (OSError, ConnectionClosedError):  # the gateway is dead, suspended, or unreachable
                pass
            finally:
                client.close()

    def _connect(self, address: str, timeout_s: float = CALL_TIMEOUT_S) -> RawClient:
        client = RawClient(address, timeout_s=timeout_s)
        if self._proxied:
            client.send_raw(encode_proxy_header(Endpoint("127.0.0.1", 1)))
        return client

    def _ask(self, client: RawClient, name: str, partition: int, offset: int) -> None:
        epoch = _epoch(client)
        taken = []
        for call in (self._commit, self._look_up):
            asked = time.monotonic()
            if call(client, partition, offset):
                taken.append(Turn(name, self.group, epoch, asked, time.monotonic(), call.__name__.strip("_")))
        if _epoch(client) == epoch:
            self._turns += taken

    def _commit(self, client: RawClient, partition: int, offset: int) -> bool:
        member_id, generation = self._member
        row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        asked = time.monotonic()
        answer = client.call(
            "OffsetCommit", 5, group_id=self.group, generation_id_or_member_epoch=generation, member_id=member_id,
            topics=[{"name": self._topic, "partitions": [row]}],
        )  # fmt: skip
        taken = answer["topics"][0]["partitions"][0]["error_code"] == 0
        if taken:
            self._commits.append(Commit(partition, offset, asked, time.monotonic(), self.group))
        return bool(taken)

    def _look_up(self, client: RawClient, _partition: int, _offset: int) -> bool:
        wanted = [{"name": self._topic, "partition_indexes": [*range(len(self._gateways))]}]
        asked = time.monotonic()
        answer = client.call("OffsetFetch", 5, group_id=self.group, topics=wanted)
        if answer["error_code"] != 0:
            return False
        answered = time.monotonic()
        self._lookups += [
            Lookup(row["partition_index"], row["committed_offset"], asked, answered, self.group)
            for row in answer["topics"][0]["partitions"]
            if row["error_code"] == 0
        ]
        return True


def _epoch(client: RawClient) -> int:
    """The leader epoch of the groups' partition, as this gateway knows it."""
    partitions = client.call("Metadata", 9, topics=[{"name": OFFSETS_TOPIC}])["topics"][0]["partitions"]
    return int(partitions[0]["leader_epoch"]) if partitions else -1
