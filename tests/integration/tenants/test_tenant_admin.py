"""A gateway with the permissions of its tenant's administrator only."""

from pathlib import Path

import pytest

from tests.integration.confluent import Record, commit, committed, consume, create_topic, produce
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, running
from tests.support.names import unique_topic


@pytest.fixture
def tenant() -> str:
    """That no other test uses."""
    return unique_topic("team")


def test_a_tenant_administrators_token_is_enough(
    secured_pulsar: SecuredPulsar, tenant: str, tmp_path: Path
) -> None:
    root = secured_pulsar.root
    secured_pulsar.create_tenant(tenant)
    sections = {"tenant": tenant, "namespace": "orders"}
    with running(gateway_on(secured_pulsar, tmp_path / "gateway", pulsar=sections)) as gateway:
        create_topic(gateway.bootstrap, "t")
        produce(gateway.bootstrap, "t", [Record(b"1"), Record(b"2")])
        assert len(consume(gateway.bootstrap, "t", 2)) == 2
        commit(gateway.bootstrap, "group", "t", 2)
        assert committed(gateway.bootstrap, "group", "t") == [2]
    assert root.call("GET", f"namespaces/{tenant}/orders/permissions") == {}
    assert sorted(root.call("GET", f"persistent/{tenant}/orders-gateway/partitioned")) == [
        f"persistent://{tenant}/orders-gateway/{topic}" for topic in ("__consumer_offsets", "__transaction_state")
    ]
