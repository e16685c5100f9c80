"""One member of a consumer group, in a process of its own, that prints its events: one JSON object a line.

`python -m tests.integration.fleet_member BOOTSTRAP GROUP TOPIC`. Events: `assigned` (generation, partitions, time),
`read` (partition, offset and value of each record), `committed` (offsets by partition, with the times before the
request and after the response). On SIGTERM, the member leaves.

kafka-python 3.0.12 loses a completed join if topics' metadata changed since it sent its subscription and `poll` ends
between the responses to JoinGroup and SyncGroup, on Apache Kafka too. So the member subscribes first, and knows all
partitions before the first `poll`. `kafka_python_mended` has the rest.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import kafka
from kafka.errors import KafkaError, RetriableError, UnknownBrokerIdError

from tests.integration.kafka_python_mended import mend

POLL_MS = 200
MAX_POLL_INTERVAL_MS = 20_000
"""A join waits for its answer a little longer than this."""


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self._consumer._coordinator._generation
        partitions = [each.partition for each in assigned]
        tell("assigned", generation=generation.generation_id, partitions=partitions, at=time.monotonic())


def main(bootstrap: str, group: str, topic: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=6_000, heartbeat_interval_ms=300, request_timeout_ms=6_500,
        max_poll_records=50, max_poll_interval_ms=MAX_POLL_INTERVAL_MS, reconnect_backoff_max_ms=500,
        metadata_max_age_ms=5_000,
    )  # fmt: skip
    mend(consumer)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    consumer.subscribe([topic], listener=Listener(consumer))
    # Otherwise the leader may assign nothing, and not notice later partitions.
    while not patiently(lambda: consumer.partitions_for_topic(topic)):
        time.sleep(POLL_MS / 1000)
    while not stopping:
        polled = patiently(lambda: consumer.poll(POLL_MS))
        if polled:
            every = [record for records in polled.values() for record in records]
            tell("read", records=[(record.partition, record.offset, record.value.decode()) for record in every])
            commit(consumer, {part.partition: records[-1].offset + 1 for part, records in polled.items()})
    consumer.close()


def patiently(call: Callable[[], Any]) -> Any:
    """None when a gateway goes down during the call; the caller retries, as the Java client does internally."""
    try:
        return call()
    except (RetriableError, UnknownBrokerIdError) as error:
        tell("failed", error=repr(error))
        return None


def commit(consumer: kafka.KafkaConsumer, offsets: dict[int, int]) -> None:
    asked = time.monotonic()
    try:
        consumer.commit(timeout_ms=5_000)
        tell("committed", offsets=offsets, asked=asked, answered=time.monotonic())
    except KafkaError as error:  # lost the partition, or got no response: the next owner reads the records again
        tell("refused", error=repr(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
