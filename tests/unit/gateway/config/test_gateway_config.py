"""Limits are checked against each other; unknown settings are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config.gateway_config import Config, ConfigError, load
from gateway.config.limits import MIB, Limits


def test_defaults_agree() -> None:
    assert Config() == Config.model_validate({})
    assert Config().pulsar.full_namespace == "kafka/default"


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_message_bytes": 2 * MIB, "max_request_bytes": 1 * MIB}, id="message above request"),
        pytest.param(
            {"append_max_entry_bytes": 2 * MIB, "append_max_in_flight_bytes": 1 * MIB}, id="entry above in flight"
        ),
        pytest.param(
            {"append_max_in_flight_bytes": 4 * MIB, "append_max_queued_bytes": 3 * MIB}, id="in flight above queued"
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=next(iter(limits))):
        Limits.model_validate(limits)


@pytest.mark.parametrize("times", [{"lease_ms": 1_499}, {"dead_after_ms": 2_199}])
def test_times_of_the_fleet_that_contradict_each_other_are_refused(times: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=next(iter(times))):
        Config.model_validate({"fleet": times})


def test_a_single_address_needs_a_way_to_the_others() -> None:
    listener = {"name": "outside", "port": 9093, "single_address": True}
    with pytest.raises(ValidationError, match=r"fleet\.forwarding"):
        Config.model_validate({"kafka": {"listeners": [listener]}})
    config = Config.model_validate({"kafka": {"listeners": [listener]}, "fleet": {"forwarding": {"port": 9193}}})
    assert config.fleet.forwarding is not None and config.fleet.forwarding.port == 9193
    with pytest.raises(ValidationError, match="forwarding"):
        Config.model_validate({"kafka": {"listeners": [{"name": "forwarding"}]}})


@pytest.mark.parametrize(
    ("limits"),
    [
        {"max_message_bytes": 1 * MIB, "max_request_bytes": 1 * MIB},
        {"append_max_entry_bytes": MIB, "append_max_in_flight_bytes": MIB, "append_max_queued_bytes": MIB},
    ],
)
def test_equal_limits_agree(limits: dict[str, int]) -> None:
    assert Limits.model_validate(limits).model_dump(include=set(limits)) == limits


@pytest.mark.parametrize(
    "config",
    [
        {"kafkaa": {}},
        {"kafka": {"prot": 1}},
        {"pulsar": {"service": "pulsar://x"}},
        {"http": {"ports": 1}},
        {"limits": {"max_conections": 1}},
    ],
)
def test_unknown_keys_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Config.model_validate(config)


@pytest.mark.parametrize("name", sorted(Limits.model_fields.keys() - {"client_memory_bytes"}))
def test_no_limit_is_negative_or_without_bound(name: str) -> None:
    for value in (-1, None, "many", "1_000_000", True):
        with pytest.raises(ValidationError):
            Limits.model_validate({name: value})


@pytest.mark.parametrize("port", [-1, 65_536, "http", "9092", "9_092", True, 9092.0])
def test_ports(port: object) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"kafka": {"port": port}})


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(
        """
        [kafka]
        port = 19092
        advertised_host = "kafka.example"
        [pulsar]
        service_url = "pulsar://a:6650,b:6650"
        tenant = "acme"
        namespace = "events"
        [limits]
        max_connections = 10
        """
    )
    config = load(path)
    assert (config.kafka.port, config.kafka.advertised_host) == (19092, "kafka.example")
    assert config.pulsar.full_namespace == "acme/events"
    assert config.limits == Limits(max_connections=10)


def test_session_timeouts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="min_session_timeout_ms"):
        Config.model_validate({"groups": {"min_session_timeout_ms": 7_000, "max_session_timeout_ms": 6_999}})


def test_networks_are_texts_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[kafka]\ntrusted_proxies = ["10.1.0.0/16", "::1"]\n[fleet.forwarding]\ntrusted_peers = ["10.2.3.4"]\n'
    )
    config = load(file)
    assert [str(network) for network in config.kafka.trusted_proxies] == ["10.1.0.0/16", "::1/128"]
    assert config.fleet.forwarding is not None
    assert [str(network) for network in config.fleet.forwarding.trusted_peers] == ["10.2.3.4/32"]


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", ""), ("", "canary"), ("alice", 5), ("alice", ["canary"]), ("ANONYMOUS", "canary")],
)
def test_users_that_cannot_log_in_are_refused(tmp_path: Path, user: str, password: object) -> None:
    """A password from an unset variable would let everyone in with SCRAM."""
    file = tmp_path / "gateway.toml"
    file.write_text(f'[security.users]\n"{user}" = {json.dumps(password)}\nbob = "canary-of-bob"\n')
    with pytest.raises(ConfigError, match=r"security\.users") as refused:
        load(file)
    assert "canary" not in str(refused.value)
    file.write_text('[security]\nusers = "canary"\n')
    with pytest.raises(ConfigError, match=r"security\.users") as refused:
        load(file)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("total_mb", [128, 300, 616, 4_096])
@pytest.mark.parametrize("given", [{}, {"decoding_threads": 3}, {"unread_budget_bytes": 8 * MIB}])
def test_one_limit_for_all_memory_of_clients(total_mb: int, given: dict[str, int]) -> None:
    limits = Limits.model_validate({"client_memory_bytes": total_mb * MIB, **given})
    assert limits.model_dump(include=set(given)) == given
    assert 0.5 * total_mb * MIB < limits.budgets_bytes <= total_mb * MIB
    assert limits.max_request_bytes <= Limits().max_request_bytes
    assert limits.fetch_budget_bytes < limits.unread_budget_bytes
    assert limits.reader_budget_bytes < limits.readers_budget_bytes


def test_the_default_budgets_are_shares_of_their_sum() -> None:
    limits = Limits(client_memory_bytes=Limits().budgets_bytes)
    assert limits.model_dump(exclude={"client_memory_bytes"}) == Limits().model_dump(exclude={"client_memory_bytes"})


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"client_memory_bytes": 127 * MIB}, "greater than or equal"),
        ({"client_memory_bytes": 256 * MIB, "cache_budget_bytes": 250 * MIB}, "client_memory_bytes must be at least"),
        ({"client_memory_bytes": 256 * MIB, "requests_budget_bytes": 60 * MIB}, "client_memory_bytes must be at least"),
        ({"client_memory_bytes": "256 MiB"}, "integer"),
        ({"client_memory_bytes": 256 * MIB, "cache_budget_bytes": "much"}, "integer"),
    ],
)
def test_budgets_that_do_not_fit_into_the_memory_are_refused(limits: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Limits.model_validate(limits)
