"""Topics that Pulsar's own tools delete and create again, without the gateway."""

from __future__ import annotations

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Record, create_topic, produce, read_all
from tests.integration.native import Admin, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.mark.parametrize("maker", ["kafka", "pulsar"])
def test_the_old_log_hides_nothing(pulsar: PulsarStandalone, gateway: GatewayProcess, maker: str) -> None:
    topic, admin = unique_topic("anew"), Admin(pulsar)
    if maker == "kafka":
        create_topic(gateway.bootstrap, topic)
    else:
        admin.create_partitioned(topic, 1)
    old = [f"old{number}".encode() for number in range(5)]
    produce(gateway.bootstrap, topic, [Record(value) for value in old])
    assert read_all(gateway.bootstrap, topic) == old
    admin.topic("DELETE", topic, "/partitions?force=true")
    if maker == "pulsar":  # it has no id of its own, so the gateway must notice that it was deleted
        wait_for(lambda: is_unknown(gateway, topic), "the gateway knows that the topic is gone")
    admin.create_partitioned(topic, 1)
    new = [f"new{number}".encode() for number in range(3)]

    def end_offset() -> int:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        with connected(gateway.bootstrap) as client:
            (row,) = client.call("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=asked)["topics"]
        return int(row["partitions"][0]["offset"])

    wait_for(lambda: end_offset() == 0, "the gateway knows that the topic is another one")
    produce(gateway.bootstrap, topic, [Record(value) for value in new])
    assert read_all(gateway.bootstrap, topic) == new


def is_unknown(gateway: GatewayProcess, topic: str) -> bool:
    with connected(gateway.bootstrap) as client:
        (row,) = client.call("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)["topics"]
    return bool(row["error_code"] == UNKNOWN_TOPIC_OR_PARTITION)
