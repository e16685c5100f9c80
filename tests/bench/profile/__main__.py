"""Where the processor time goes: `python -m tests.bench.profile [--only PART]`; writes docs/reports/profile.md."""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.bench.profile.bounds import Measured, forwarding_costs, number, rates_without
from tests.bench.profile.cases import GATEWAY, KAFKA, LEADER, PARTS, PULSAR, Case
from tests.bench.profile.cores import CLIENT, used
from tests.bench.profile.samples import KINDS, sampled
from tests.bench.servers import running_servers
from tests.support.report import REPORTS, head, table

LONGEST = 8
"""The number of folders and of functions that are shown for each case."""
PROCESSES = (CLIENT, GATEWAY, LEADER, PULSAR, KAFKA)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be given several times")
    options = parser.parse_args()
    began_s = time.monotonic()
    work_dir = Path(tempfile.mkdtemp(prefix="kafka-gateway-profile-"))
    measured: list[Measured] = []
    try:
        with running_servers(work_dir) as servers:
            for part in options.only or PARTS:
                for case in PARTS[part](servers):
                    print(f"{case.name}, through {case.through} …", flush=True)
                    measured.append(_measure(case, work_dir))
                    print("\n".join(_costs(measured[-1:])[-1:]), flush=True)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    text = _markdown(measured, time.monotonic() - began_s)
    print(text)
    if not options.only:
        (REPORTS / "profile.md").write_text(text)


def _measure(case: Case, folder: Path) -> Measured:
    case.prepare()
    case.run()  # compilers warm up
    use = used(case.run, case.prepare())
    return case, use, {name: sampled(case.run, case.prepare()[name], folder) for name in case.gateways}


def _markdown(measured: list[Measured], duration_s: float) -> str:
    lines = [head("Profile", "python -m tests.bench.profile", duration_s, HOW_TO_READ)]
    cores = os.cpu_count()
    lines += ["## Processor time of each process, µs", "", *_costs(measured), ""]
    lines += [f"## Cores in use, of {cores}", "", *_cores(measured), ""]
    lines += ["## Rates that a gateway without costs would reach", "", *rates_without(measured), ""]
    lines += ["## CPU by a single address, of the leader's own address", "", *forwarding_costs(measured), ""]
    lines += ["## Processor time of the gateways by kind of work, µs", "", *_kinds(measured), ""]
    lines += ["## Processor time of the gateways outside the kernel, µs", "", *_longest(measured)]
    return "\n".join(lines).rstrip() + "\n"


def _costs(measured: list[Measured]) -> list[str]:
    rows = []
    for case, use, _ in measured:
        costs = [number(use.us_a_unit(name)) if name in use.user_s else "" for name in PROCESSES]
        all_us = sum(map(use.us_a_unit, use.user_s))
        possible = (os.cpu_count() or 1) / all_us * 1e6
        rows.append([case.name, case.through, case.unit, *costs, *map(number, (all_us, possible, use.done.a_second))])
    headings = ("case", "through", "µs of each", *PROCESSES, "all", "a second at most", "a second")
    return table(headings, rows, texts=3)


def _cores(measured: list[Measured]) -> list[str]:
    rows = []
    for case, use, _ in measured:
        cores = [f"{use.cores(name):.2f}" if name in use.user_s else "" for name in PROCESSES]
        waits = [f"{use.waiting(name):.2f}" if name in use.user_s else "" for name in (GATEWAY, LEADER)]
        rows.append([case.name, case.through, *cores, f"{use.other_cores:.2f}", f"{use.done.idle_cores:.2f}", *waits])
    headings = ("case", "through", *PROCESSES, "others", "idle", "gateway waits", "leader waits")
    return table(headings, rows, texts=2)


def _kinds(measured: list[Measured]) -> list[str]:
    rows = []
    for case, use, by_process in measured:
        for name, samples in by_process.items():
            user_us = use.user_s[name] / use.done.units * 1e6
            shares = [number(user_us * samples.share(samples.kinds, kind)) for kind in KINDS]
            rows.append([case.name, name, number(use.us_a_unit(name)), number(use.system_us(name)), *shares])
    return table(("case", "process", "all", "kernel", *KINDS), rows, texts=2)


def _longest(measured: list[Measured]) -> list[str]:
    rows = []
    for case, use, by_process in measured:
        for name, samples in by_process.items():
            user_us = use.user_s[name] / use.done.units * 1e6
            cells = [case.name, name]
            for counts in (samples.rooms, samples.functions):
                shares = [(user_us * samples.share(counts, each), each) for each, _ in counts.most_common(LONGEST)]
                cells.append(", ".join(f"{number(cost_us)} {each}" for cost_us, each in shares))
            rows.append(cells)
    return table(("case", "process", "folders", "functions"), rows)


HOW_TO_READ = """\
Where the processor time goes in those cases of [bench.md](bench.md) and [fleet.md](fleet.md) that are furthest from
what is wanted. Client, gateway, Pulsar and Kafka share the cores of one machine.

* *client* is the load generator, the Java tool without its start, or librdkafka. Each case runs once to warm up, and
  once more for the figures. *cores* are µs of each, times how many there are a second. What a server does at rest
  is included: with 100 records a second, that counts.
* **a second at most**: all cores of the machine, divided by what *all* processes need together. Where no core is idle,
  this is what binds the rate; elsewhere it is one process that uses a core, or the time of the way.
* **with no core idle**: the rate at which all cores are busy, divided by the rate of the target beside it. *with the
  kernel's time only* and *without costs*: the same if the gateway's CPU were only what the kernel charges to it, or
  nothing. Where the last one is below what is wanted, no faster gateway reaches it on this machine. Where they are far
  above what is measured, cores are idle: the time of the way binds.
* **by a single address**: the CPU of the gateway that forwards and of the leader, and of both if forwarding took only
  what the kernel charges for it; divided by that of a leader that clients reach directly.
* **waits**: the share of the time in which the gateway, or the leader behind it, had work, but no core: a server with
  many threads takes both. On machines of their own they would not wait.
* **others**: other processes, and work of the kernel that it charges to no process.
* **kernel**: system time of the process. The rest is its user time, divided like the samples that `py-spy` takes of
  the same case in one more run: by the innermost frame. So small figures are rough.
* **gateway's Python**: code of this project in the interpreter. *interpreter*: functions of the interpreter and of the
  standard library that it calls. *event loop*: uvloop and libuv. *C library*: copying and memory, mostly.
* **folders, functions**: the most expensive ones, with all that they call outside this project, except for the
  kernel.
"""


if __name__ == "__main__":
    main()
