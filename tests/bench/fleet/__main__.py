"""How fast a fleet replaces a gateway, and what a fleet costs: `python -m tests.bench.fleet [--only PART]`; writes
docs/reports/fleet.md."""

from tests.bench.fleet.costs import COSTS
from tests.bench.fleet.deaths import deaths
from tests.bench.fleet.last_stable_offset import last_stable_offset
from tests.bench.fleet.model import model
from tests.bench.fleet.takeover import single_writes, takeover
from tests.bench.fleet.workers import workers
from tests.bench.parts_program import run_parts

PARTS = {
    "deaths": deaths, "takeover": takeover, "last stable offset": last_stable_offset, "workers": workers, **COSTS,
    "model": model, "single writes": single_writes,
}  # fmt: skip
"""The last one leaves 10,000 loaded partitions in Pulsar, beside which others would measure its lack of memory."""
HOW_TO_READ = """\
What happens when one of three gateways dies, and what a fleet costs. Pulsar, all gateways and the load run on one
machine. CPU is the processor time of the gateways alone; it depends less on other programs than times and rates do.
How to size a fleet with these figures: [guides/deploy.md](../guides/deploy.md#how-many-gateways).

* **network cable pulled**: the gateway runs in a network namespace whose link is taken down.
* **by a single address**: the request reaches a gateway that does not lead the partition, which forwards it.
* **with a snapshot**: once a second a heartbeat describes the whole fleet, for gateways that start.
* **the last stable offset**: asked for by a read_committed ListOffsets, from the moment when the next leader is the
  only one that clients see. In each case the leader is killed three times.
* **workers**: `kafka-gateway serve --workers` beside a Pulsar of the bench's own that acknowledges records without
  storing them, so that the gateways are the limit. The fleet, groups and topics are in the real Pulsar. Each worker
  leads four of the partitions that are written to, with as many requests in flight whatever the number of workers. The
  load and Pulsar use the same cores, so what counts is the number of batches in a second of the workers' CPU: where
  it stays the same, N workers with a core each do what N times one does.
* **a model**: at rest, without records. What needs more than a core breaks first.
* **partitions of the busiest, of the mean**: partitions of the busiest gateway, divided by the mean.
"""


if __name__ == "__main__":
    run_parts("fleet", __doc__, PARTS, HOW_TO_READ)
