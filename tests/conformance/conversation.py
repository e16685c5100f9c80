"""The same conversation with Apache Kafka and with the gateway, and the comparison of the responses.

A case is a function of a `Conversation` and a version. The decorator `case` runs it for every version of an API that
Kafka serves, once with each server, and fails where the normalised responses differ.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.conformance import differences
from tests.conformance.normalise import ABSENT, Names, normalise
from tests.conformance.normalise import differences as compare
from tests.support.raw_client import (
    TIMEOUT_S,
    ConnectionClosedError,
    RawClient,
    TrailingBytesError,
    connected,
    decode_response,
)

# Highest version of each API that Apache Kafka 3.9.2 serves; all start at 0. Checked by test_api_versions.py.
LAST_VERSION = {
    "Produce": 11,
    "Fetch": 17,
    "ListOffsets": 9,
    "Metadata": 12,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "FindCoordinator": 6,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "DescribeGroups": 5,
    "ListGroups": 5,
    "ApiVersions": 4,
    "SaslHandshake": 1,
    "SaslAuthenticate": 2,
    "CreateTopics": 7,
    "DeleteTopics": 6,
    "InitProducerId": 5,
    "DescribeConfigs": 4,
    "AlterConfigs": 2,
    "CreatePartitions": 3,
    "DeleteGroups": 2,
    "IncrementalAlterConfigs": 1,
    "OffsetDelete": 0,
    "DescribeCluster": 1,
    "ListConfigResources": 0,
    "DeleteRecords": 2,
    "OffsetForLeaderEpoch": 4,
    "DescribeLogDirs": 4,
    "ElectLeaders": 2,
    "AlterPartitionReassignments": 0,
    "ListPartitionReassignments": 0,
    "DescribeProducers": 0,
    "DescribeTopicPartitions": 0,
    "ConsumerGroupHeartbeat": 0,
    "ConsumerGroupDescribe": 0,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 4,
    "TxnOffsetCommit": 4,
    "EndTxn": 4,
    "DescribeTransactions": 0,
    "ListTransactions": 1,
}
RECORD_FILE = os.environ.get("CONFORMANCE_RECORD")
FOR_EVER = {"retention.ms": "-1"}  # the records of the cases are years old
CLOSE_SESSION: dict[str, Any] = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 0,
    "isolation_level": 0,
    "session_epoch": -1,
    "topics": [],
    "forgotten_topics_data": [],
}
READY_WITHIN_S = 60.0
LOADED_WITHIN_S = 60.0
UNSETTLED = {14, 15, 16}  # coordinator loading, not available, not (yet) this one


class Server:
    """One of the two servers, with the names that this run uses on it."""

    def __init__(self, name: str, bootstrap: str, prefix: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.names = Names(prefix)
        self.topics: set[str] = set()


class Conversation:
    """A connection to one server, and everything that the server sent on it, normalised."""

    def __init__(self, server: Server) -> None:
        self.names = server.names
        self.answers: list[Any] = []
        self._server = server
        self._clients: list[RawClient] = []
        self._fetch_sessions: set[int] = set()
        self._at_close: list[Callable[[], object]] = []
        self.client = self.connect()
        self.names.start_offset = 0
        self.names.producer_ids = {}
        self.names.hide_timestamps = False

    def connect(self, *, timeout_s: float = TIMEOUT_S, source: str | None = None) -> RawClient:
        """One more connection, closed when the case ends; from the address `source` if it is given."""
        client = RawClient(self._server.bootstrap, timeout_s=timeout_s, source=source)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close everything: a server has a bounded number of fetch sessions, and keeps them for minutes."""
        for clean_up in self._at_close:
            clean_up()
        if self._fetch_sessions:
            with connected(self._server.bootstrap) as client:
                for session_id in self._fetch_sessions:
                    client.call("Fetch", 7, **CLOSE_SESSION, session_id=session_id)
        for client in self._clients:
            client.close()

    def at_close(self, clean_up: Callable[[], object]) -> None:
        """Clean-up at the end of the case, however it ends; not part of the comparison."""
        self._at_close.append(clean_up)

    def say(self, answer: Any) -> None:
        """Record a value for the comparison."""
        self.answers.append(answer)

    def call(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send a request, record the normalised response for the comparison, and return the original one."""
        correlation_id = self.client.send(api, version, **fields)
        return self.receive(api, version, correlation_id)

    def when_loaded(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send a request. Kafka gets it again until its coordinator is created and loaded, which only a new cluster
        needs."""
        deadline = time.monotonic() + LOADED_WITHIN_S
        while True:
            answer = self.call(api, version, **fields)
            if self._server.name != "kafka" or not _is_loading(answer) or time.monotonic() > deadline:
                return answer
            self.answers.pop()
            time.sleep(0.05)

    def receive(self, api: str, version: int, correlation_id: int, client: RawClient | None = None) -> dict[str, Any]:
        """Read one response and record it. A closed connection or invalid bytes are recorded, too, and raised."""
        try:
            answer = (client or self.client).receive(api, version, correlation_id)
        except Exception as error:
            self.say(_failure(error))
            raise AnsweredBadlyError(str(error)) from error
        self.say({api: normalise(answer, self.names)})
        self._fetch_sessions |= {answer.get("session_id") or 0} - {0}
        return answer

    def outcome(self, client: RawClient | None = None) -> None:
        """Record what follows on a connection without knowing its schema: the bytes of a frame, or the close."""
        try:
            self.say({"frame": (client or self.client).read_frame().hex()})
        except (ConnectionClosedError, TimeoutError) as error:
            self.say(_failure(error))

    def frame(self, api: str, version: int, payload: bytes, client: RawClient | None = None) -> None:
        """Send a request as bytes; record the response, or the close."""
        peer = client or self.client
        peer.send_frame(payload)
        try:
            _, answer = decode_response(api, version, peer.read_frame())
        except (ConnectionClosedError, TimeoutError, TrailingBytesError) as error:
            self.say(_failure(error))
        else:
            self.say({api: normalise(answer, self.names)})

    # Set-up: not part of the comparison.

    def topic(self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """This run's topic of that name, created at first use and ready to be led."""
        full = self.names.prefix + name
        if full not in self._server.topics:
            self._create(full, partitions, FOR_EVER | (configs or {}))
            self._server.topics.add(full)
        return full

    def has_topic(self, name: str) -> bool:
        """Whether this run has created the topic on this server."""
        return self.names.prefix + name in self._server.topics

    def topic_id(self, name: str) -> uuid.UUID:
        """The id of this run's topic of that name."""
        for known, label in self.names.topic_ids.items():
            if label == f"<id of {name}>":
                return known
        answer = self.client.call("Metadata", 12, topics=[{"name": self.names.prefix + name}])
        found: uuid.UUID = answer["topics"][0]["topic_id"]
        self.names.topic_ids[found] = f"<id of {name}>"
        return found

    def node_id(self) -> int:
        """The id of the server's only node."""
        return int(self.client.call("Metadata", 1, topics=[])["brokers"][0]["node_id"])

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self._offset(topic, partition, -1)

    def start_here(self, topic: str, partition: int = 0) -> None:
        """Count this case's offsets from the log's current end, so that cases can share a partition."""
        self.names.start_offset = self.end_offset(topic, partition)

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        asked = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}]
        answer = self.client.call("ListOffsets", 5, replica_id=-1, topics=asked)
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def _create(self, full: str, partitions: int, configs: dict[str, str]) -> None:
        wanted = {
            "name": full,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        answer = self.client.call("CreateTopics", 4, topics=[wanted], timeout_ms=15000)
        if answer["topics"][0]["error_code"]:
            raise AssertionError(f"{self._server.name} did not create {full}: {answer}")
        self._await_leaders(full, partitions)

    def _await_leaders(self, full: str, partitions: int) -> None:
        asked = [
            {"name": full, "partitions": [{"partition_index": index, "timestamp": -1} for index in range(partitions)]}
        ]
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            answer = self.client.call("ListOffsets", 5, replica_id=-1, topics=asked)
            if not any(part["error_code"] for part in answer["topics"][0]["partitions"]):
                return
            time.sleep(0.02)
        raise AssertionError(f"{self._server.name}: {full} has no leaders: {answer}")


class AnsweredBadlyError(Exception):
    """The server closed the connection, was silent, or sent invalid bytes. It is recorded, and ends the conversation.
    """


class Pair:
    """Kafka, the gateway, and the comparison."""

    def __init__(self, kafka: Server, gateway: Server, *, apply_table: bool) -> None:
        self.kafka = kafka
        self.gateway = gateway
        self.apply_table = apply_table

    def check(self, case_name: str, conversation: Callable[[Conversation], None]) -> None:
        """Run the conversation with both. Fails for an unexpected difference, and for an expected one that does not
        occur."""
        expected = _answers(self.kafka, conversation)
        if RECORD_FILE:
            _record(RECORD_FILE, case_name, expected)
        actual = _answers(self.gateway, conversation)
        longest = max(len(expected), len(actual))
        found = compare(_padded(expected, longest), _padded(actual, longest))
        known = differences.find(case_name) if self.apply_table else None
        if known is not None:
            known.check(found)
        elif found:
            pytest.fail(_report(case_name, found), pytrace=False)


def case(api: str, versions: Iterable[int] | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of `function(conversation, version, ...)`, for each version of the API that Kafka serves."""
    chosen = range(LAST_VERSION[api] + 1) if versions is None else versions

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        others = list(inspect.signature(function).parameters.values())[2:]
        for name in ("version", "request", "pair"):
            others.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(function)
        def test(*, version: int, request: pytest.FixtureRequest, pair: Pair, **more: Any) -> None:
            name = f"{request.node.path.stem}::{request.node.name}"
            pair.check(name, lambda conversation: function(conversation, version, **more))

        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
        test.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        marked: Callable[..., None] = pytest.mark.parametrize("version", chosen, ids=lambda number: f"v{number}")(test)
        return marked

    return decorate


def _answers(server: Server, function: Callable[[Conversation], None]) -> list[Any]:
    conversation = Conversation(server)
    try:
        function(conversation)
    except AnsweredBadlyError:
        pass
    except (KeyError, IndexError, AssertionError, OSError, ConnectionClosedError) as error:
        if server.name == "kafka":
            raise
        conversation.say({"ended early": repr(error)})
    finally:
        conversation.close()
    return conversation.answers


def _is_loading(answer: dict[str, Any]) -> bool:
    parts = [answer, *answer.get("coordinators", ())]
    return any(part.get("error_code") in UNSETTLED for part in parts)


def _padded(answers: list[Any], length: int) -> list[Any]:
    return answers + [ABSENT] * (length - len(answers))


def _failure(error: Exception) -> dict[str, str]:
    if isinstance(error, ConnectionClosedError):
        return {"connection": "closed"}
    if isinstance(error, TimeoutError):
        return {"connection": "silent"}
    if isinstance(error, TrailingBytesError | struct.error | IndexError | UnicodeDecodeError):
        return {"undecodable": str(error)}
    return {"failure": repr(error)}


def _report(case_name: str, found: dict[str, tuple[Any, Any]]) -> str:
    lines = [f"{path}: Kafka {kafka!r}, gateway {gateway!r}" for path, (kafka, gateway) in found.items()]
    return "\n".join([case_name, *lines])


def _record(path: str, case_name: str, answers: list[Any]) -> None:
    with open(path, "a") as out:
        out.write(json.dumps({"case": case_name, "kafka": answers}, default=repr) + "\n")
