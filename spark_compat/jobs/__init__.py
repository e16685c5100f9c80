"""The jobs. Each file has the job as a team would write it, `run`, and its `trial`, which creates the topics and
returns the resulting rows. The bootstrap address is all that a job knows of the cluster."""
