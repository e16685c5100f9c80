"""The timeout of requests that Kafka's controller answers."""

from __future__ import annotations


def is_over(timeout_ms: int) -> bool:
    """Whether it was over when the request arrived: then Kafka does nothing, and answers REQUEST_TIMED_OUT."""
    return timeout_ms <= 0
