"""A large fleet, computed from what the other parts measured."""

from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet import costs

GATEWAYS, PARTITIONS, CONNECTIONS = 100, 100_000, 1_000_000
METADATA_MAX_AGE_S = 300
"""How often a client asks again, by default."""
TITLE = f"A model from these figures: {GATEWAYS} gateways, {PARTITIONS:,} partitions, {CONNECTIONS:,} connections"


def model(_work_dir: Path, _pulsar: PulsarStandalone, figures: Figures) -> None:
    """What each gateway needs at rest, without records. What needs more than a core breaks first."""
    led, connections = PARTITIONS // GATEWAYS, CONNECTIONS // GATEWAYS
    asked_a_second = connections / METADATA_MAX_AGE_S
    scale = PARTITIONS / costs.CATALOGUED

    def of_partitions(heading: str) -> float:
        return figures.number(costs.LED_TITLE, f"{costs.LED[0]:,}", heading)

    def of_membership(heading: str) -> float:
        return figures.number(costs.MEMBERSHIP, str(GATEWAYS), heading)

    def metadata_cpu(asked_for: str) -> float:
        """% of a core."""
        return figures.number(costs.METADATA, asked_for, costs.METADATA_CPU) * asked_a_second / 10

    none_mb = of_partitions(costs.WITHOUT)
    partitions_mb = of_partitions(costs.KB_OF_A_PARTITION) * led / 1024
    direct = figures.number(costs.CONNECTIONS, costs.DIRECT, costs.KB_OF_A_CONNECTION)
    connections_mb = direct * connections / 1024
    read_kb = of_membership(costs.LOG_READ)
    for what, amount, unit in (
        (f"memory of {led:,} partitions", partitions_mb, "MB"),
        (f"memory of {connections:,} connections", connections_mb, "MB"),
        ("memory with the process itself", none_mb + partitions_mb + connections_mb, "MB"),
        ("membership: CPU", of_membership(costs.HEARTBEATS_CPU), "% of a core"),
        ("membership: read from Pulsar", read_kb, "KB/s"),
        ("membership: read by all gateways", read_kb * GATEWAYS / 1024, "MB/s"),
        ("partitions at rest: CPU", of_partitions(costs.AT_REST) * led / costs.LED[0], "% of a core"),
        ("metadata, clients ask for one topic: CPU", metadata_cpu(costs.ONE_TOPIC), "% of a core"),
        ("metadata, clients ask for all topics: CPU", metadata_cpu(costs.ALL_TOPICS) * scale, "% of a core"),
        ("first metadata of all topics after a change: CPU", of_membership(costs.PLACING) * scale / 1000, "s"),
    ):
        figures.add(TITLE, ("for each gateway", "amount", "unit"), [what, amount, unit])
