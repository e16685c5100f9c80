"""The jobs. Each file has the job as a team would write it, `run`, and its `trial`: the topics that it meets, and the
rows that come of it. A job knows one thing of the cluster, its bootstrap address."""
