"""A trial of clients that move to the other cluster by themselves when their cluster is killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.integration.confluent import committed
from tests.regions.geo import BEFORE_S, PARTITIONS, Row, all_values, new_topic
from tests.regions.lab import Lab, Writer, until
from tests.regions.member import Members
from tests.support.java_programs.java_clients import JavaClients

AFTER_S = 5.0
JAVA_OPTIONS = ("session.timeout.ms=6000", "heartbeat.interval.ms=500", "reconnect.backoff.max.ms=500")


def clients_move(lab: Lab) -> Row:
    """librdkafka's producer and group and a Java 4 group bootstrap at both haproxies; eu is killed, then comes back."""
    topic = new_topic(lab, "moving")
    bootstrap = lab.bootstrap("eu")
    writer = Writer(bootstrap, topic, PARTITIONS)
    java_group = f"{topic}-java"
    with Members(bootstrap, topic, topic) as members, _java_member(bootstrap, java_group, topic) as java_output:
        while min(committed(lab.only("us"), group, topic, PARTITIONS)[0] for group in (topic, java_group)) < 0:
            writer.write(1)
        writer.write(BEFORE_S)
        written_in_eu = {*writer.offsets}
        lab.cluster.kill("eu")
        start = time.monotonic()
        outage_s = writer.write_until_acknowledged_anew()
        writer.write(AFTER_S)
        writer.flush()
        writer.check_no_errors()
        new = {*writer.offsets} - written_in_eu
        there = new & all_values(lab, "us", topic).keys()
        members.await_values(there)
        moved_s = time.monotonic() - start
        until(lambda: there <= _values(java_output), "the Java group has read what is in us")
        java_moved_s = time.monotonic() - start
        lab.cluster.up()
        expected = {*writer.offsets}
        caught_up_s = until(lambda: expected <= all_values(lab, "us", topic).keys(), "eu's last records are in us")
        members.await_values(expected)
        until(lambda: expected <= _values(java_output), "the Java group has read all")
        copies = sum(all_values(lab, "us", topic).values()) - len(expected)
        java_again = len(_lines(java_output)) - len(_values(java_output))
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "doubled": f"{copies} (a producer that is not idempotent)",
        "writes stood still": f"{outage_s:.1f} s",
        "group had what was in us": f"{moved_s:.1f} s after the kill",
        "Java group": f"{java_moved_s:.1f} s",
        "read again": f"{members.read - len(members.values)}, Java {java_again}",
        "caught up": f"{caught_up_s:.1f} s after eu was up",
    }


@contextmanager
def _java_member(bootstrap: str, group: str, topic: str) -> Iterator[Path]:
    """A Java consumer. It writes each value that it reads to the file, one in a line."""
    with TemporaryDirectory(prefix="kafka-gateway-regions-java-") as folder:
        output = Path(folder) / "output"
        command = JavaClients(Path(folder)).group_member(bootstrap, group, topic, *JAVA_OPTIONS)
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        try:
            yield output
        finally:
            process.kill()
            process.wait()


def _values(output: Path) -> set[bytes]:
    return {*_lines(output)}


def _lines(output: Path) -> list[bytes]:
    return output.read_bytes().split(b"\n")[:-1]
