"""Limits and times of the transaction coordinator, with Apache Kafka's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TransactionConfig:
    max_timeout_ms: int = 15 * 60 * 1000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    id_expiration_check_interval_ms: int = 60 * 60 * 1000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    abort_retry_ms: int = 10 * 1000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms: the delay after an abort that the log refused."""
