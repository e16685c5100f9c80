"""What authorization and quotas cost for each batch inside a gateway, which are off and on in turns.

All sides are in this process, without sockets and Pulsar (tests.bench.inside), and measure their own CPU in slices of
some milliseconds. Other load of the machine makes whole rounds slower, hardly their ratios. What the added µs are of a
whole gateway's batch is computed with a gateway that has neither, in a process of its own, with sockets and Pulsar.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import NormalDist, median
from typing import NamedTuple

import uvloop

from deploy.local.standalone import PulsarStandalone
from gateway.garbage_collection import GarbageCollection
from tests.bench.figures import Figures
from tests.bench.inside.cases import Load
from tests.bench.inside.fetch import RECORDS, FetchCase, FetchLoad
from tests.bench.inside.guarded import guarded_scene
from tests.bench.inside.produce import ProduceCase, ProduceLoad
from tests.bench.inside.scene import Scene
from tests.bench.inside.worker import measured_us, warm_up
from tests.bench.security.gateways import fill, gateway_on, produce_cost, tail_cost
from tests.bench.servers import create_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

ROUNDS = 600
SLICE_BATCHES = 100
WHOLE_ROUNDS = 5
CASES: tuple[ProduceCase | FetchCase, ...] = (
    ProduceCase(1, 20), ProduceCase(10, 20), ProduceCase(160, 20), FetchCase(1), FetchCase(20),
)  # fmt: skip
WITHOUT_WHOLE = (FetchCase(20),)
"""The load generator has no sessions."""
WITHOUT = "nothing"
CONFIDENCE = 0.95


class Share(NamedTuple):
    """Additional CPU in percent: the median of the rounds, and its confidence interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def rights(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    with gateway_on(work_dir, pulsar) as gateway:
        whole_us = {_name(case): _whole_us(gateway, case) for case in CASES if case not in WITHOUT_WHOLE}
    for case in CASES:
        costs = uvloop.run(_in_turns(case))
        without = costs.pop(WITHOUT)
        shares = {name: _share([b / a for a, b in zip(without, each, strict=True)]) for name, each in costs.items()}
        added_us = median(b - a for a, b in zip(without, costs["both"], strict=True))
        figures.add(
            "Authorization and quotas, CPU inside the gateway for a batch",
            ("batch", "µs without", *(f"{name}, % (95 %)" for name in shares), "both, µs", "whole gateway, µs",
             "both, % of the whole"),
            [_name(case), median(without), *shares.values(), added_us, *_of_whole(added_us, whole_us.get(_name(case)))],
        )  # fmt: skip


def _whole_us(gateway: GatewayProcess, case: ProduceCase | FetchCase) -> float:
    """µs of CPU of a whole gateway for such a batch."""
    topic, pids, bootstrap = unique_topic("bench"), [gateway.pid], gateway.bootstrap
    create_topic(bootstrap, topic)
    if isinstance(case, ProduceCase):
        costs = [produce_cost(pids, bootstrap, topic, case.records) for _ in range(WHOLE_ROUNDS)]
    else:
        fill(bootstrap, topic, RECORDS)
        costs = [tail_cost(pids, bootstrap, bootstrap, topic, RECORDS, max_bytes=1) for _ in range(WHOLE_ROUNDS)]
    return median(float(each["cpu_us"][0]) for each in costs)


def _of_whole(added_us: float, whole_us: float | None) -> list[object]:
    return ["", ""] if whole_us is None else [whole_us, 100 * added_us / whole_us]


async def _in_turns(case: ProduceCase | FetchCase) -> dict[str, list[float]]:
    """µs of CPU a batch of each side, in each round. Each round begins with another side."""
    scenes = {
        WITHOUT: Scene(),
        "ACLs": guarded_scene(quotas=False),
        "quotas": guarded_scene(acls=False),
        "both": guarded_scene(),
    }
    GarbageCollection().start()
    loads = {name: _load(scene, case) for name, scene in scenes.items()}
    found: dict[str, list[float]] = {name: [] for name in scenes}
    names = [*scenes]
    for number in range(-1, ROUNDS):
        for name in _rotated(names, number):
            scenes[name].fleet.beat()
            await warm_up(loads[name])
            cost_us = await measured_us(loads[name], SLICE_BATCHES)
            if number >= 0:  # the first round warms up
                found[name].append(cost_us)
    return found


def _load(scene: Scene, case: ProduceCase | FetchCase) -> Load:
    return ProduceLoad(scene, case) if isinstance(case, ProduceCase) else FetchLoad(scene, case)


def _rotated(names: list[str], number: int) -> list[str]:
    at = number % len(names)
    turned = names[at:] + names[:at]
    return turned[::-1] if number // len(names) % 2 else turned


def _share(ratios: list[float]) -> Share:
    """The interval is that of the order statistics: nothing is presumed about the distribution."""
    ordered = sorted(100 * (ratio - 1) for ratio in ratios)
    reach = int(NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * sqrt(len(ordered)) / 2)
    last = len(ordered) - 1
    return Share(median(ordered), ordered[max(0, last // 2 - reach)], ordered[min(last, last // 2 + 1 + reach)])


def _name(case: ProduceCase | FetchCase) -> str:
    if isinstance(case, ProduceCase):
        return f"produced, {case.records} record{'s' if case.records > 1 else ''}"
    return f"fetched, session of {case.session_partitions}"
