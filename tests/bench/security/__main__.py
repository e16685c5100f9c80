"""What security costs, and how tenants affect each other: `python -m tests.bench.security [--only PART]`; writes
docs/reports/security.md."""

from tests.bench.parts_program import run_parts
from tests.bench.security.rights import rights
from tests.bench.security.tenants import tenants
from tests.bench.security.tls import tls

PARTS = {"rights": rights, "tls": tls, "tenants": tenants}
HOW_TO_READ = """\
What authorization, quotas and TLS cost, and what one cluster of a gateway feels of another. Pulsar, the gateways,
haproxy and the load run on one machine. CPU is the processor time of the named process alone; it depends less on other
programs than times and rates do. Figures are medians of rounds in which the sides take turns. Records have 100 bytes.

* **produce, tail**: 20 requests of one batch in flight; the newest batches read from memory.
* **ACLs**: 1,000 ACLs of others, one that allows. **quotas**: of bytes and of request time, which nobody reaches. Each
  is the additional CPU in percent of what the gateway's own code takes without them, without sockets and Pulsar: the
  median of the rounds, and its confidence interval. The sides take turns in one process, in slices of a hundred
  batches. *whole gateway*: the CPU of a gateway without them, with sockets and Pulsar, for a batch from 20 requests in
  flight, or for a fetch with one batch; *both, % of the whole* are the additional µs of both, in percent of it.
* **TLS in haproxy**: haproxy ends it, and speaks plain TCP with the gateway.
* **Two clusters in one gateway**: the quiet one writes 50 single records a second. The other one sends batches of 160
  records from 200 requests in flight, reads without end, asks for metadata of 200 partitions in bursts of 500 requests
  on ten connections, or connects and goes with 20 connections at once. *another gateway is flooded*: the same flood,
  but by another gateway on the same machine and Pulsar. What is above that, the clusters share in the gateway. The
  clients of the flood have the lowest priority, because they would have machines of their own; Pulsar and the gateways
  still share the cores: compare these times with *alone*. *with a quota*: the cluster that floods may write 5 MB/s.
* **beside a Pulsar that keeps no records**: it acknowledges at once what it gets, and needs a fraction of a core. What
  the quiet cluster feels of the flood is then the gateway's doing, and that of the kernel.
* **one Apache Kafka broker**: the quiet client and the flood have topics of their own there, and no quotas.
* **Work of the gateway before it answers**: from the arrival of a single record to its answer, counted in processor
  time of the event loop, with a Pulsar that answers at once, and without sockets: nothing else that the machine does
  counts. The flood comes from 200 connections (metadata: 40) that are always readable: 1,000 requests in flight,
  fetches of 1 MiB, metadata of 100 topics, new connections.
"""


if __name__ == "__main__":
    run_parts("security", __doc__, PARTS, HOW_TO_READ)
