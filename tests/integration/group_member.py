"""One member of a consumer group, in a process of its own so that it can be killed.

`python -m tests.integration.group_member BOOTSTRAP GROUP TOPIC [OPTION=VALUE…]` with options of librdkafka. Prints the
value of each record, and commits after printing: a value that no member prints was lost. On SIGTERM, the member leaves.
"""

import signal
import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException

BATCH_RECORDS = 100
POLL_S = 0.2


def main(bootstrap: str, group: str, topic: str, *options: str) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **dict(option.split("=", 1) for option in options),
    }
    if config.get("group.protocol") != "consumer":  # in the consumer protocol the coordinator has these settings
        config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not stopping:
        taken = [message for message in consumer.consume(BATCH_RECORDS, POLL_S) if message.error() is None]
        for message in taken:
            print((message.value() or b"").decode(), flush=True)
        with suppress(KafkaException):  # nothing to commit, or a rebalance: the next commit includes it
            consumer.commit(asynchronous=False)
    _leave(consumer)


def _leave(consumer: Consumer) -> None:
    """Unsubscribe first: `close` alone once took over a minute in a cooperative rebalance, like librdkafka's bug #4527.
    """
    consumer.unsubscribe()
    while consumer.assignment():
        consumer.poll(POLL_S)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
