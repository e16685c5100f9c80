"""Differences between the gateway and Apache Kafka 3.9.2, with their reasons. Nothing else may differ.

Each entry names cases by pattern, and the paths in the responses that may differ there. A case with an entry fails when
another path differs, and also when nothing differs any more: then the entry must be removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_VERSION = re.compile(r"[-\[]v(\d+)\]$")


@dataclass(frozen=True)
class Difference:
    """`case` and `paths` are patterns (`*` and `?`); brackets are plain characters. No `versions` means all."""

    case: str
    paths: tuple[str, ...]
    reason: str
    versions: range | None = None

    def covers(self, case_name: str) -> bool:
        version = _VERSION.search(case_name)
        of_ours = self.versions is None or (version is not None and int(version[1]) in self.versions)
        return of_ours and _matches(case_name, self.case)

    def check(self, found: dict[str, tuple[Any, Any]]) -> None:
        """Raises AssertionError when `found` (path → both values) does not match this entry."""
        assert found, f"no longer differs from Kafka, remove the entry: {self.case} ({self.reason})"
        more = {path: values for path, values in found.items() if not self._expects(path)}
        assert not more, f"differs in more than is listed ({self.reason}): {more}"

    def _expects(self, path: str) -> bool:
        return any(_matches(path, pattern) for pattern in self.paths)


_ZOOKEEPER = "Kafka without ZooKeeper refuses version 0, which kept offsets there; the gateway stores them as others"
_UNREAD = "records are stored as they came, but for the first few unread; the rest is the consumer's to find"
_OWN_TIMES = _UNREAD + ", so that no single record can be named"
_CRASH = "Kafka's validation fails with UNKNOWN_SERVER_ERROR; the gateway says what is wrong with the records"
_CRASH_OF_A_HANDLER = "Kafka's handler fails with UNKNOWN_SERVER_ERROR; the gateway says what is wrong with the request"
_STRICT = "Kafka lets it pass; the gateway closes the connection, as for any other malformed request"
_GONE = "Kafka finds the largest timestamp at an offset before the log's start; the gateway, at one that is left"
_STARTED_ONCE = "Kafka goes on telling when a transaction that has ended began"
_NEWER_VERSION = "transaction.version 2, as in Kafka 4: whose transaction was aborted goes on with the next epoch"
_FUTURE_EPOCH = "Kafka takes the batch of an epoch that nobody has, and can then never end the transaction"
_ORDER_OF_CHECKS = "of two things that are wrong with a batch, Kafka names what the coordinator says"
_LEFT_OUT = "in compacted topics the gateway leaves out what was aborted: the marker that clients look for may be gone"
_WITH_MESSAGES = range(8, 12)  # the versions of Produce that name the invalid records
_PRODUCED = ("[0].Produce.*", "[1].Fetch.*")

DIFFERENCES: tuple[Difference, ...] = (
    Difference("test_transactional_records::test_compacted_topic[False*]", ("[*].Fetch.*",), _LEFT_OUT),
    *(
        Difference(f"test_transactions::{test}[*]", ("*",), _NEWER_VERSION)
        for test in ("test_open_transaction_is_aborted_by_its_own_producer", "test_timed_out_producer_continues")
    ),
    *(
        Difference(f"test_transactions::{test}[*]", ("*.transaction_start_time_ms",), _STARTED_ONCE)
        for test in ("test_open_transaction_is_aborted", "test_timed_out")
    ),
    *(
        Difference(
            f"test_transaction_admin::{test}[*]",
            ("*.active_producers", "[2].active"),
            "Kafka also lists producers of which it knows a marker alone",
        )
        for test in ("test_producer_with_a_marker_alone", "test_timed_out_transaction")
    ),
    Difference("test_transactional_records::test_epoch_of_the_future[*]", ("*",), _FUTURE_EPOCH),
    Difference("test_transactional_records::test_wrong_flags[False-48-*]", ("[0].Produce.*",), _ORDER_OF_CHECKS),
    Difference(
        "test_transactional_records::test_wrong_flags[True-48-*]",
        ("[2].Produce.*", "[3].Fetch.*"),
        "Kafka remembers the sequence of a batch that it refused for good",
    ),
    *(
        Difference(
            f"test_transactional_records::test_transactional_without_a_producer[(7, {epoch}, -1)-*]",
            ("[0].Produce.*",),
            _ORDER_OF_CHECKS,
        )
        for epoch in (-1, 0)
    ),
    Difference("test_groups::test_commit_of_a_simple_consumer[*]", ("*",), _ZOOKEEPER, range(1)),
    Difference(
        "test_consumer_groups::test_classic_consumer_joins_a_consumer_group[*]",
        ("[1].JoinGroup.member_id",),
        "member ids are UUIDs, which Kafka writes in base64",
    ),
    Difference(
        "test_consumer_groups::test_consumer_member_joins_a_classic_group[*]",
        ("*",),
        "a group changes its protocol during its first rebalance, too; Kafka finds no assignments, and ends the client",
    ),
    Difference("test_consumer_groups::test_commit[*]", ("*",), _ZOOKEEPER, range(1)),
    Difference("test_groups::test_fetch[*]", ("*.OffsetFetch.*",), _ZOOKEEPER, range(1)),
    Difference(
        "test_transactional_offsets::test_foreign[True-{'producer_epoch': 1}-*]",
        ("*",),
        "Kafka 3.9 takes any later epoch of a producer that has offsets open; Kafka 4 and the gateway verify it",
    ),
    Difference(
        "test_transactional_offsets::test_foreign[True-{'producer_epoch': -1}-*]",
        ("[0].TxnOffsetCommit.*.error_code",),
        _CRASH_OF_A_HANDLER,
    ),
    Difference(
        "test_cluster::test_all_configs_of_a_topic[*]",
        ("[0]",),
        "entry.format is the gateway's own",
    ),
    *(
        Difference(f"test_configs::{test}-*]", ("[0].*",), "groups have configurations since Kafka 4.0")
        for test in (
            "test_incremental_other_resources[x-32",
            "test_alter_other_resources[32",
            "test_describe_other_resources[x-32",
            "test_a_topic_beside_an_unknown_resource[32",
        )
    ),
    Difference("test_configs::test_refused_operations[retention.ms:9:5-*]", ("[0].*.error_code",), _CRASH_OF_A_HANDLER),
    Difference(
        "test_fetch::test_isolation_level[2-*]",
        ("[0].Fetch.responses",),
        "when its handler fails, Kafka leaves out topics that are named by id",
        range(13, 18),
    ),
    Difference(
        "test_batches::test_null_records[*]",
        ("[0]",),
        "Kafka's handler fails and never answers; the gateway refuses them",
    ),
    Difference(
        "test_batches::test_a_record_that_does_not_parse[none-endless varint-*]",
        ("[0].Produce.*.error_code",),
        _CRASH,
    ),
    *(
        Difference(f"test_batches::test_a_record_among_others_that_does_not_parse[{codec}-9-*]", _PRODUCED, _UNREAD)
        for codec in ("none", "gzip", "snappy", "lz4")
    ),
    Difference(
        "test_batches::test_a_record_among_others_that_does_not_parse[zstd-9-*]", _PRODUCED, _UNREAD, _WITH_MESSAGES
    ),
    *(
        Difference(f"test_batches::test_a_record_that_does_not_parse[{codec}-another offset-*]", _PRODUCED, _UNREAD)
        for codec in ("gzip", "snappy", "lz4")
    ),
    Difference(
        "test_batches::test_a_record_that_does_not_parse[zstd-another offset-*]", _PRODUCED, _UNREAD, _WITH_MESSAGES
    ),
    Difference("test_batches::test_wrong_max_timestamp[*]", ("[1].Fetch.*.max timestamp",), _UNREAD),
    Difference("test_produce::test_timestamp_too_early[*]", ("[0].Produce.*", "[1]"), _UNREAD, range(2, 12)),
    Difference(
        "test_produce::test_timestamp_too_late[*]", ("[0].Produce.*.record_errors",), _OWN_TIMES, _WITH_MESSAGES
    ),
    Difference(
        "test_produce::test_all_timestamps_too_early[*]", ("[0].Produce.*.record_errors",), _OWN_TIMES, _WITH_MESSAGES
    ),
    Difference(
        "test_batches::test_fields_that_the_server_sets[{'attributes': 8}-*]",
        _PRODUCED,
        "Kafka clears the timestamp type that a client may not set; the gateway rewrites no batch and refuses it",
    ),
    Difference("test_batches::test_unknown_codec[*]", ("[0].Produce.*.error_code",), _CRASH),
    Difference("test_produce::test_unusual_timestamp[-2-v2]", ("[0].Produce.*.error_code",), _CRASH),
    Difference("test_produce::test_unusual_timestamp[-2-*]", ("[1].Fetch.*.max timestamp",), _UNREAD, range(3, 12)),
    Difference("test_batches::test_length_field_absurd[2147483647-*]", ("[0].Produce.*.error_code",), _CRASH),
    Difference("test_message_sets::test_unknown_codec_in_messages[5-*]", ("[0].Produce.*.error_code",), _CRASH),
    Difference("test_message_sets::test_unknown_codec_in_messages[7-*]", ("[0].Produce.*.error_code",), _CRASH),
    Difference("test_message_sets::test_wrapper_around_garbage[*]", ("[0].Produce.*.error_code",), _CRASH),
    *(
        Difference(f"test_delete_records::test_delete_before[{before}-*]", ("[4].ListOffsets.*",), _GONE)
        for before in (5, 7, 19)
    ),
    *(
        Difference(
            f"test_delete_records::test_delete_before[{before}-*]",
            ("[4].ListOffsets.*", "[10].ListOffsets.*"),
            _GONE + "; in v0, Kafka lists the segment that it keeps, also when all of it is deleted",
        )
        for before in (20, -1)
    ),
    Difference("test_delete_records::test_offsets_continue_after_deletion[*]", ("*.ListOffsets.*",), _GONE),
    Difference(
        "test_create_topics::test_which_fault_is_named[{'replicas': 2}-*]",
        ("[0].CreateTopics.*",),
        "Kafka has one broker to place replicas on; BookKeeper keeps copies, whatever is asked",
    ),
    Difference(
        "test_create_topics::test_names_that_collide_within_one_request[*]",
        ("[0].CreateTopics.*",),
        "Kafka looks at the topics that were there before the request only",
    ),
    *(
        Difference(
            f"test_create_partitions::test_grow_by_very_many[{counts}*]",
            ("[0].CreatePartitions.results[*].error_code",),
            "Kafka answers UNKNOWN_SERVER_ERROR; the gateway refuses the rows that are too many, and says why",
        )
        for counts in ("[10002]", "[5001, 5002", "[20000")
    ),
    Difference(
        "test_consumer_groups::test_describe_odd_groups[*]",
        ("[0].ConsumerGroupDescribe.groups[*].error_code", "[3].ConsumerGroupDescribe.groups[*].error_code"),
        _CRASH_OF_A_HANDLER,
    ),
    Difference("test_topic_partitions::test_empty_name[*]", ("*",), "Kafka's handler fails for all topics"),
    Difference(
        "test_replicas::test_reassignment_named_twice[*]", ("[3].*.error_message",), "Kafka has an empty text, not none"
    ),
    *(
        Difference(f"test_odd_values_of_{group}::test_odd_values[{name}]", tuple(paths), _CRASH_OF_A_HANDLER)
        for group, name, *paths in (
            ("records", "Fetch", "*.max_bytes = -*", "*.session_id = *", "*.isolation_level = *"),
            ("records", "Fetch-committed", "*.max_bytes = -*", "*.session_id = *", "*.isolation_level = *"),
            (
                *("records", "Fetch-session", "*.max_bytes = -*", "*.session_id = *", "*.isolation_level = *"),
                "*.topic_id = UUID('00000000-0000-0000-0000-000000000000')*",
            ),
            ("records", "Fetch-old", "*.max_bytes = -*"),
            ("topics", "DescribeTopicPartitions", "*.topics.0.name = ''*"),
            ("settings", "AlterUserScramCredentials", "*.salted_password = b''*.error_code"),
            ("transactions", "WriteTxnMarkers", "*.markers.0.producer_* = -1*.error_code"),
        )
    ),
    Difference(
        "test_odd_values_of_topics::test_odd_values[CreateTopics]",
        ("*.replication_factor = 32767*",),
        "Kafka has one broker to place replicas on; BookKeeper keeps copies, whatever is asked",
    ),
    Difference("test_malformed::test_wrong_compact_array_size[*xff*]", ("[0]", "[1]"), _STRICT),
    Difference("test_malformed::test_tagged_fields_of_the_header[*xff*]", ("[0]", "[1]"), _STRICT),
    Difference("test_malformed::test_name_that_is_not_utf8[*]", ("[0]", "[1]"), _STRICT),
)


def find(case_name: str) -> Difference | None:
    """The entry for a case such as "test_fetch::test_end[v3]", if there is one."""
    return next((entry for entry in DIFFERENCES if entry.covers(case_name)), None)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))
