"""Runs the cases of one client on both sides."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from spark_compat.runner.servers import Side
from tests.clients.cases import Case
from tests.clients.clients import LIBRDKAFKA, ClientKind, Command
from tests.clients.driver import ActionError, DriverEndedError, NotApplicableError
from tests.clients.lab import Client, Lab
from tests.clients.verdict import Outcome, Verdict

CAUSE_LENGTH = 120


class Bench:
    """One client on one side. The process of the client is used for many cases, until it ends or hangs."""

    def __init__(self, kind: ClientKind, command: Command, side: Side, run_id: str, work_dir: Path) -> None:
        self._kind = kind
        self._command = command
        self._side = side
        self._run_id = run_id
        self._log = work_dir / f"{side.name}.log"
        self._client: Client | None = None
        self._witness: Client | None = None

    def outcome(self, case: Case) -> Outcome:
        began = time.monotonic()
        prefix = f"{self._run_id}-{case.feature[:3]}-{case.name}".replace("_", "-")
        lab = Lab(self._living_client(), self._living_witness(), self._start, prefix, self._side)
        with closing(lab):
            try:
                found = Outcome(result=case.trial(lab))
            except NotApplicableError as why:
                found = Outcome(unsupported=str(why))
            except (ActionError, DriverEndedError, AssertionError) as failure:
                found = Outcome(error=_described(failure))
        return Outcome(found.result, found.error, found.unsupported, round(time.monotonic() - began, 2))

    def close(self) -> None:
        for client in (self._client, self._witness):
            if client is not None and client.running:
                client.close()

    def _living_client(self) -> Client:
        if self._client is None or not self._client.running:
            self._client = self._start()
        return self._client

    def _living_witness(self) -> Client:
        if self._witness is None or not self._witness.running:
            log = self._log.with_suffix(".witness.log")
            self._witness = Client(LIBRDKAFKA.prepare(), self._side.bootstrap, log, LIBRDKAFKA.env)
        return self._witness

    def _start(self) -> Client:
        return Client(self._command, self._side.bootstrap, self._log, self._kind.env)


def run_cases(
    kind: ClientKind, command: Command, cases: Sequence[Case], sides: Sequence[Side], run_id: str, work_dir: Path
) -> Iterator[Verdict]:
    """Run on both sides, Kafka and the gateway, at the same time: most of the time is waiting."""
    kafka, gateway = (Bench(kind, command, side, run_id, work_dir) for side in sides)
    with ThreadPoolExecutor(2) as pool, closing(kafka), closing(gateway):
        for case in cases:
            outcomes = pool.map(lambda bench, case=case: bench.outcome(case), (kafka, gateway))
            yield Verdict(case.name, case.feature, case.title, *outcomes)


def _described(failure: Exception) -> str:
    """The error, and the line of the case that raised it."""
    lines = [frame.line for frame in traceback.extract_tb(failure.__traceback__) if "/cases/" in frame.filename]
    text = str(failure) or "not as expected"
    return f"{text.splitlines()[0][:CAUSE_LENGTH]} in `{lines[-1] if lines else ''}`"
