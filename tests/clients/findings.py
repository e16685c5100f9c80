"""Explanations of results that are not a pass; the report adds them to the results of the run."""

from __future__ import annotations

from fnmatch import fnmatchcase

NOT_TRIED = {
    "Confluent.Kafka (.NET)": "Debian has no .NET SDK; the client wraps librdkafka, which is tried here",
}
"""Client → the reason why it has no column."""

CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "kafka-python",
        "[rg]*",
        "on Apache Kafka as well, kafka-python 3 forgets its assignment for good when a poll times out while SyncGroup"
        " is answered",
    ),
    (
        "kafka-go",
        "timestamps/of_the_server",
        "kafka-go reads the client's time of a batch with LogAppendTime: the same on Apache Kafka, unless a batch is"
        " appended within the millisecond in which it was made",
    ),
)
"""Patterns of client and feature/case, and the cause of a failure there."""


def cause_of(client: str, feature: str, case: str) -> str | None:
    path = f"{feature}/{case}"
    return next((text for who, what, text in CAUSES if fnmatchcase(client, who) and fnmatchcase(path, what)), None)
