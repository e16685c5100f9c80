"""One of two gateways is killed while a query runs, and stays away: the query continues, with every record once.

The single broker of Apache Kafka is killed and restarted.
"""

from contextlib import ExitStack

from spark_compat.jobs.server_restart import BEFORE, DURING, DURING_PER_S, run, run_to_end
from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered, paced

NEEDS_OWN_SERVERS = True
PARTITIONS = 6
"""Each gateway leads some of the partitions."""


def trial(lab: Lab) -> Rows:
    with lab.faults.pair() as bootstrap:
        topic = lab.new_topic("lost", numbered(BEFORE, PARTITIONS), PARTITIONS)
        query = run(lab.spark, bootstrap, topic, lab.work_dir)
        lab.wait_for_progress(query, 1)
        records = paced(numbered(DURING, PARTITIONS, first=BEFORE), DURING_PER_S)
        with ExitStack() as lost:
            with lab.feeding(topic, records, bootstrap):
                lost.enter_context(lab.faults.lose_one())
            return {"rows": run_to_end(lab.spark, bootstrap, topic, lab.work_dir, query)}
