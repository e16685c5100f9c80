"""A fleet is upgraded, one gateway after the other, from a version without transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Sender, create_topic, sending
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, running
from tests.integration.transactional import Transactions, read
from tests.support.gateway_process import HOST, REPOSITORY, GatewayProcess
from tests.support.names import unique_topic
from tests.support.older_gateway import NotInThisCloneError, extract_sources
from tests.support.raw_client import connected

WITHOUT_TRANSACTIONS = "189b47dc8d689b075f7a7d205ae59a9b1099675c"
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
TRANSACTION = 1
NONE, COORDINATOR_NOT_AVAILABLE = 0, 15
RECORDS = 20
PAUSE_S = 0.01


@pytest.fixture(scope="module")
def older_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return extract_sources(WITHOUT_TRANSACTIONS, tmp_path_factory.mktemp("older"))
    except NotInThisCloneError as error:
        pytest.skip(str(error))


def features(gateway: GatewayProcess) -> tuple[int, int]:
    """The fleet's `transaction.version`, 0 if there is none, and the epoch of its features."""
    with connected(gateway.bootstrap) as client:
        answer = client.call("ApiVersions", 4, **SOFTWARE)
    assert answer["error_code"] == NONE
    levels = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    return levels.get("transaction.version", 0), answer["finalized_features_epoch"]


def coordinator_error(gateway: GatewayProcess, transactional_id: str) -> int:
    with connected(gateway.bootstrap) as client:
        found = client.call("FindCoordinator", 4, key_type=TRANSACTION, coordinator_keys=[transactional_id])
    [row] = found["coordinators"]
    return int(row["error_code"])


def upgrade(gateway: GatewayProcess) -> None:
    gateway.stop()
    gateway.sources = REPOSITORY
    gateway.start()
    gateway.wait_ready()


def test_transactions_begin_when_all_gateways_serve_them(
    pulsar: PulsarStandalone, older_sources: Path, tmp_path: Path
) -> None:
    """Until then, clients find no transaction coordinator and retry. A plain producer is not affected."""
    sections = {"pulsar": {"namespace": unique_topic("upgraded")}}
    gateways = []
    for number in range(2):
        forwarding = {"fleet": {"forwarding": {"host": HOST, "port": free_port()}}}
        gateways.append(gateway_on(pulsar, tmp_path / str(number), **sections, **forwarding))
        gateways[-1].sources = older_sources
    first, second = gateways
    with running(first), running(second):
        topic, name = unique_topic("upgrade"), unique_topic("writer")
        create_topic(first.bootstrap, topic)
        plain = Sender(f"{first.bootstrap},{second.bootstrap}", topic, enable_idempotence=True, retry_backoff_ms=50)
        with sending([plain], PAUSE_S):
            wait_for(lambda: plain.acknowledged >= RECORDS, "the older gateways store records")
            upgrade(first)
            level, epoch = features(first)
            assert level == 0
            assert coordinator_error(first, name) == COORDINATOR_NOT_AVAILABLE
            before = plain.acknowledged
            wait_for(lambda: plain.acknowledged >= before + RECORDS, "a fleet of both versions stores records")
            upgrade(second)
        plain.flush()
        assert not plain.errors, plain.errors
        for gateway in gateways:
            wait_for(lambda each=gateway: features(each)[0] == 2, "the fleet's version rises")  # type: ignore[misc]
        assert features(first)[1] > epoch
        producer = Transactions(first.bootstrap, name)
        producer.write(topic, b"aborted")
        producer.abort()
        producer.write(topic, b"committed")
        producer.commit()
        for gateway in gateways:
            assert read(gateway.bootstrap, topic) == [*plain.sent, b"committed"]
