"""Both servers, once a session. CONFORMANCE_KAFKA and CONFORMANCE_GATEWAY (host:port) use servers that already run.
With the same address in both, Kafka is compared with itself, which proves the normalisation."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.clients.api_versions import newest_kafka
from tests.conformance.acls import servers_with_acls
from tests.conformance.conversation import Pair, Server
from tests.conformance.login_servers import servers_with_logins
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.tokens import Issuer


@pytest.fixture(scope="session")
def gateway_of_its_own(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The only gateway that has used its namespace: its leader epochs are those of a new Kafka cluster."""
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("gateway"))) as server:
        yield server


@pytest.fixture(scope="session")
def gateway_on_secured_pulsar(
    secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(secured_pulsar, tmp_path_factory.mktemp("gateway"))) as server:
        yield server


@pytest.fixture(scope="session")
def pair(request: pytest.FixtureRequest) -> Pair:
    return _pair(request, "gateway_of_its_own")


@pytest.fixture(scope="session")
def pair_on_secured_pulsar(request: pytest.FixtureRequest) -> Pair:
    return _pair(request, "gateway_on_secured_pulsar")


def _pair(request: pytest.FixtureRequest, gateway_fixture: str) -> Pair:
    kafka = os.environ.get("CONFORMANCE_KAFKA") or request.getfixturevalue("kafka").bootstrap
    gateway = os.environ.get("CONFORMANCE_GATEWAY") or request.getfixturevalue(gateway_fixture).bootstrap
    run = uuid.uuid4().hex[:6]
    return Pair(
        Server("kafka", kafka, f"c{run}k-"),
        Server("gateway", gateway, f"c{run}g-"),
        apply_table=kafka != gateway,
    )


@pytest.fixture(scope="session")
def newest_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Instead of the reference, a Kafka with `transaction.version` 2."""
    gateway = os.environ.get("CONFORMANCE_GATEWAY") or request.getfixturevalue("gateway_of_its_own").bootstrap
    run = uuid.uuid4().hex[:6]
    with newest_kafka(tmp_path_factory.mktemp("newest-kafka")) as kafka:
        yield Pair(Server("kafka", kafka, f"n{run}k-"), Server("gateway", gateway, f"n{run}g-"), apply_table=True)


@pytest.fixture(scope="session")
def pair_with_acls(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two other servers, with an authorizer."""
    with servers_with_acls(secured_pulsar, tmp_path_factory.mktemp("acls")) as pair:
        yield pair


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """Signs tokens for `pair_with_logins`."""
    return Issuer(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="session")
def pair_with_logins(
    secured_pulsar: SecuredPulsar, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Two other servers, where clients log in and have the rights of ACLs."""
    with servers_with_logins(secured_pulsar, issuer, tmp_path_factory.mktemp("logins")) as pair:
        yield pair
