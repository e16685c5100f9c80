"""Threads of the broker are suspended in turns, while connections to it are lost and topics are unloaded.

A busy or blocked broker works in an order that an idle one never has.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.broker_proxy import LosingBrokerProxy
from tests.integration.confluent import Sender, create_topic, read_all
from tests.integration.native import Admin
from tests.integration.servers import gateway_on, running
from tests.integration.transactional_writers import check_transactions, writing
from tests.support.jvm_threads import JvmThreads, debugging
from tests.support.names import unique_topic

WRITING_THREADS = "BookKeeperClientWorker"
OTHER_THREADS = (
    "BookKeeperClientScheduler", "BookieJournal", "BookieWriteThreadPool", "BookieReadThreadPool", "ForceWrite",
    "bookie-io", "bookkeeper-ml-scheduler", "broker-topic-workers", "metadata-store", "pulsar-io", "pulsar-ordered",
    "pulsar-web",
)  # fmt: skip
STANDSTILL_S = (0.05, 0.2, 0.5, 1.0)
DISTURBANCES, PARTITIONS, WRITERS = 20, 2, 2
WAITING = 500
"""A sender has at most so many values without an acknowledgement."""
STEP_S = 0.01
DELIVERY_MS = 300_000


class Broker:
    """A Pulsar whose threads can be stopped, and two gateways that reach it through a proxy."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        with debugging() as port:
            self._pulsar = stack.enter_context(running(PulsarStandalone(folder / "pulsar")))
        self._threads = stack.enter_context(JvmThreads(port))
        self._proxy = stack.enter_context(LosingBrokerProxy(self._pulsar.service_url).running())
        namespace = unique_topic("threads")
        pulsar = {"namespace": namespace, "service_url": self._proxy.service_url}
        gateways = [
            stack.enter_context(running(gateway_on(self._pulsar, folder / name, pulsar=pulsar)))
            for name in ("one", "two")
        ]
        self.bootstrap = ",".join(gateway.bootstrap for gateway in gateways)
        self._admin = Admin(self._pulsar, f"kafka/{namespace}")

    def disturb(self, chance: random.Random, topics: Sequence[str]) -> None:
        topic = f"{chance.choice(topics)}-partition-{chance.randrange(PARTITIONS)}"
        threads = WRITING_THREADS if chance.random() < 0.4 else chance.choice(OTHER_THREADS)
        unloading = threading.Thread(target=self._unload, args=[topic])
        with self._threads.suspended(threads):
            time.sleep(chance.choice(STANDSTILL_S))  # meanwhile, the broker receives entries
            if chance.random() < 0.6:
                self._proxy.lose_connections()
            if chance.random() < 0.3:
                unloading.start()
            time.sleep(chance.choice(STANDSTILL_S))
        if unloading.ident is not None:
            unloading.join()
        time.sleep(chance.random())

    def _unload(self, topic: str) -> None:
        with contextlib.suppress(AssertionError, OSError):  # the broker is too busy
            self._admin.topic("PUT", topic, "/unload")
            print("unloaded", topic)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with ExitStack() as stack:
        yield Broker(tmp_path, stack)


@contextlib.contextmanager
def sending(senders: Sequence[Sender]) -> Iterator[None]:
    """Each sends numbers, in a thread, until the end of the block."""
    stop = threading.Event()

    def send(sender: Sender) -> Callable[[], None]:
        def run() -> None:
            while not stop.wait(STEP_S):
                first = len(sender.sent)
                if first - sender.acknowledged < WAITING:
                    sender.send(b"%d" % number for number in range(first, first + 4))

        return run

    threads = [threading.Thread(target=send(sender)) for sender in senders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_what_is_written_is_there_once_and_in_order(broker: Broker) -> None:
    seed = int(os.environ.get("THREADS_SEED", "0")) or random.randrange(1, 1_000_000)
    print(f"THREADS_SEED={seed}")
    chance = random.Random(seed)
    transactional, idempotent = unique_topic("transactional"), unique_topic("idempotent")
    for topic in (transactional, idempotent):
        create_topic(broker.bootstrap, topic, PARTITIONS)
    options = {"linger_ms": 0, "batch_num_messages": 3, "enable_idempotence": True, "message_timeout_ms": DELIVERY_MS}
    senders = [Sender(broker.bootstrap, idempotent, partition=number, **options) for number in range(PARTITIONS)]
    with sending(senders), writing(broker.bootstrap, transactional, PARTITIONS, WRITERS) as writers:
        for _ in range(DISTURBANCES):
            broker.disturb(chance, [transactional, idempotent])
    for partition, sender in enumerate(senders):
        sender.flush()
        assert sender.errors == []
        assert read_all(broker.bootstrap, idempotent, partition) == sender.sent
    check_transactions(broker.bootstrap, transactional, PARTITIONS, writers)
