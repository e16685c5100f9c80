"""Compacted topics with transactions: finds the messages that Pulsar's compaction must remove, and marks them in the
log."""
