"""Compacted topics with transactions: what Pulsar's compaction is to remove is found here, and said in the log."""
