"""What a gateway could reach at the most on this machine: the case without its processor time."""

import os
from collections.abc import Iterator

from tests.bench.fleet.costs import DIRECT
from tests.bench.profile.cases import GATEWAY, LEADER, Case
from tests.bench.profile.cores import Use
from tests.bench.profile.samples import Samples
from tests.bench.report import TARGET_NAMES
from tests.support.report import table

WANTED = {
    ("produce 10 from 20", "Kafka"): 1.0,
    ("produce 1,000 from 20", "Pulsar"): 0.95,
    **{(f"read {each} from the start", "Pulsar"): 0.95 for each in ("10", "160", "1,000")},
    ("ProducerPerformance", "Kafka"): 0.9,
    ("ConsumerPerformance", "Kafka"): 0.9,
}
"""The goals of bench.md for these rates."""

Measured = tuple[Case, Use, dict[str, Samples]]


def rates_without(measured: list[Measured]) -> list[str]:
    """Each case through a gateway, beside each other target: rates, divided by that target's."""
    rows = [
        [case.name, beside.through, _wanted(case, beside), *map(number, _ratios(use, others_use))]
        for case, use, _ in measured
        if case.through == TARGET_NAMES["gateway"]
        for beside, others_use in _beside(case, measured)
        if use.done.a_second != others_use.done.a_second  # otherwise the client sets the pace
    ]
    headings = ("case", "of", "wanted", "measured", "with no core idle", "with the kernel's time only", "without costs")
    return table(headings, rows, texts=2)


def _beside(case: Case, measured: list[Measured]) -> Iterator[tuple[Case, Use]]:
    others = {*TARGET_NAMES.values()} - {case.through}
    return ((other, use) for other, use, _ in measured if other.name == case.name and other.through in others)


def _wanted(case: Case, beside: Case) -> str:
    wanted = WANTED.get((case.name, beside.through))
    return "" if wanted is None else f"≥ {wanted:.2f}"


def _ratios(use: Use, beside: Use) -> tuple[float, ...]:
    """Of the rates: as measured; with all cores busy; then with the gateway's system time only, and with none of it."""
    cores = os.cpu_count() or 1
    all_us = sum(map(use.us_a_unit, use.user_s))
    without_us = all_us - use.us_a_unit(GATEWAY)
    kernel_us = without_us + use.system_us(GATEWAY)
    at_most = (cores / each_us * 1e6 for each_us in (all_us, kernel_us, without_us))
    return tuple(rate / beside.done.a_second for rate in (use.done.a_second, *at_most))


def forwarding_costs(measured: list[Measured]) -> list[str]:
    """Each case by a single address: the CPU of both gateways, divided by that of the leader alone."""
    alone = {case.name: use.us_a_unit(LEADER) for case, use, _ in measured if case.through == DIRECT}
    rows = []
    for case, use, _ in measured:
        if GATEWAY in use.user_s and LEADER in use.user_s:
            leader_us, kernel_us = use.us_a_unit(LEADER), use.system_us(GATEWAY)
            both = leader_us + use.us_a_unit(GATEWAY), leader_us + kernel_us
            rows.append([case.name, *(number(us / alone[case.name]) for us in both)])
    return table(("case", "measured", "if forwarding took the kernel's time only"), rows, texts=1)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
