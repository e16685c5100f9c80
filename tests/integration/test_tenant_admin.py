"""A gateway with the permissions of its tenant's administrator only."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Record, commit, committed, consume, create_topic, produce
from tests.integration.native import Admin
from tests.integration.servers import gateway_on, running
from tests.support.names import unique_topic

KEY = b"0123456789abcdef0123456789abcdef"


def token(role: str) -> str:
    """A JSON web token (HS256) in Pulsar's format."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    signed = f"{part(json.dumps({'alg': 'HS256'}).encode())}.{part(json.dumps({'sub': role}).encode())}"
    return f"{signed}.{part(hmac.new(KEY, signed.encode(), hashlib.sha256).digest())}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(KEY).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('root')}",
    }
    data_dir = tmp_path_factory.mktemp("secured")
    with running(PulsarStandalone(data_dir, settings=settings, token=token("root"))) as pulsar:
        yield pulsar


@pytest.fixture
def tenant() -> str:
    """That no other test uses."""
    return unique_topic("team")


def test_a_tenant_administrators_token_is_enough(secured: PulsarStandalone, tenant: str, tmp_path: Path) -> None:
    root = Admin(secured, token=token("root"))
    root.call("PUT", f"tenants/{tenant}", {"adminRoles": ["gateway"], "allowedClusters": ["standalone"]})
    sections = {"tenant": tenant, "namespace": "orders", "token": token("gateway")}
    with running(gateway_on(secured, tmp_path / "gateway", pulsar=sections)) as gateway:
        create_topic(gateway.bootstrap, "t")
        produce(gateway.bootstrap, "t", [Record(b"1"), Record(b"2")])
        assert len(consume(gateway.bootstrap, "t", 2)) == 2
        commit(gateway.bootstrap, "group", "t", 2)
        assert committed(gateway.bootstrap, "group", "t") == [2]
    assert root.call("GET", f"namespaces/{tenant}/orders/permissions") == {}
    assert sorted(root.call("GET", f"persistent/{tenant}/orders-gateway/partitioned")) == [
        f"persistent://{tenant}/orders-gateway/{topic}" for topic in ("__consumer_offsets", "__transaction_state")
    ]
