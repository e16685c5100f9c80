"""PySpark jobs as written for Kafka, run against Apache Kafka and against the gateway, and compared row by row."""
