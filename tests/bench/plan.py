"""How long a run measures, and how often."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    rounds: int = 3
    span_s: float = 1.2
    latency_s: float = 4.0
    catch_up_bytes: int = 512 << 20
    small_catch_up_batches: int = 250_000
    """So much that a read takes some tenths of a second: what comes before its first batch has a column of its own."""
    tool_records: int = 1_500_000
    tool_rounds: int = 2
    groups: int = 1_000
    groups_s: float = 12.0
    stored_offsets: int = 100_000
    cold_partitions: int = 1_000
    transactions_s: float = 5.0
    transactional_records: int = 300_000
    transactional_rounds: int = 6
    """Of the cases that are compared with each other: they differ by less than two rounds of one do."""


QUICK = Plan(
    rounds=1, span_s=0.8, latency_s=2.0, catch_up_bytes=32 << 20, small_catch_up_batches=10_000,
    tool_records=300_000, tool_rounds=1, groups=50, groups_s=6.0, stored_offsets=10_000,
    cold_partitions=300, transactions_s=3.0, transactional_records=100_000, transactional_rounds=1,
)  # fmt: skip
