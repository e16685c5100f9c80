"""Pulsar is killed while a query runs, and restarted; the gateway stays: the query continues, with every record once.

On Apache Kafka the broker is killed.
"""

from spark_compat.jobs.server_restart import DOWN_S, ride_out
from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab

NEEDS_OWN_SERVERS = True


def trial(lab: Lab) -> Rows:
    return ride_out(lab, "bounce", lambda: lab.faults.bounce_storage(DOWN_S))
