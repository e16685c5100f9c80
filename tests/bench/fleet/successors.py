"""Gateways of which each takes over from the one before it, which is killed."""

import time
from collections.abc import Sequence
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

LIMIT_S = 300.0


class Gateways:
    """Gateways of one namespace."""

    def __init__(self, work_dir: Path, pulsar: PulsarStandalone) -> None:
        self.namespace = unique_topic("taken-over")
        self._work_dir = work_dir
        self._pulsar = pulsar
        self._started = 0
        self.leader = self._start()

    def _start(self) -> GatewayProcess:
        folder = self._work_dir / f"{self.namespace}-{self._started}"
        self._started += 1
        sections = {"pulsar": {"namespace": self.namespace}}
        gateway = GatewayProcess(folder, self._pulsar.service_url, self._pulsar.admin_url, sections)
        gateway.start()
        try:
            gateway.wait_ready()
        except Exception:
            gateway.kill()
            raise
        return gateway

    def take_over(self, topics: Sequence[str]) -> GatewayProcess:
        """The leader of all partitions, after the previous leader was killed."""
        successor = self._start()
        self.leader.kill()
        self.leader = successor
        for topic in topics:
            _await_sole_leader(successor.bootstrap, topic)
        return successor

    def close(self) -> None:
        self.leader.kill()


def _await_sole_leader(bootstrap: str, topic: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    with connected(bootstrap) as client:
        while time.monotonic() < end_s:
            answer = client.call("Metadata", 9, topics=[{"name": topic}])
            leaders = {each["leader_id"] for each in answer["topics"][0]["partitions"]}
            if len(answer["brokers"]) == 1 and leaders == {answer["brokers"][0]["node_id"]}:
                return
            time.sleep(0.1)
    raise TimeoutError("the killed gateway still leads partitions")
