"""Pulsar is killed under a running query and comes back, the gateway stays: the query goes on, with every record once.

On Apache Kafka it is the broker.
"""

from spark_compat.jobs.server_restart import BEFORE, DOWN_S, DURING, DURING_PER_S, run, run_to_end
from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered, paced

NEEDS_OWN_SERVERS = True


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("bounce", numbered(BEFORE, 3), partitions=3)
    query = run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    lab.wait_for_progress(query, 1)
    with lab.feeding(topic, paced(numbered(DURING, 3, first=BEFORE), DURING_PER_S)):
        lab.faults.bounce_storage(DOWN_S)
    return {"rows": run_to_end(lab.spark, lab.bootstrap, topic, lab.work_dir, query)}
