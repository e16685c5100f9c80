"""ApiVersions (key 18), v0 to v4. KIP-35, KIP-511 (client software name; unknown versions)."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import LAST_VERSION, Conversation, Pair, case
from tests.support.raw_client import connected, encode_request, message_class

SOFTWARE = {"client_software_name": "conformance", "client_software_version": "1.0"}


def software(version: int, name: str = "conformance", number: str = "1.0") -> dict[str, str]:
    return {"client_software_name": name, "client_software_version": number} if version >= 3 else {}


def advertised(bootstrap: str) -> dict[int, tuple[int, int]]:
    with connected(bootstrap) as client:
        answer = client.call("ApiVersions", 0)
    return {item["api_key"]: (item["min_version"], item["max_version"]) for item in answer["api_keys"]}


def ours(conversation: Conversation, version: int, **fields: str) -> None:
    """Compare everything except the list of APIs, which test_every_version_that_kafka_serves checks."""
    conversation.call("ApiVersions", version, **fields)
    noted = conversation.answers[-1]["ApiVersions"]
    noted["api_keys"] = bool(noted["api_keys"])
    for name in ("supported_features", "finalized_features", "finalized_features_epoch"):
        noted.pop(name, None)


@pytest.mark.parametrize("api", LAST_VERSION)
def test_every_version_that_kafka_serves(pair: Pair, api: str) -> None:
    key = message_class(api, "Request").API_KEY
    assert advertised(pair.kafka.bootstrap)[key] == (0, LAST_VERSION[api])
    lowest, highest = advertised(pair.gateway.bootstrap)[key]
    assert lowest == 0
    assert highest >= LAST_VERSION[api]


@case("ApiVersions")
def test_known_version(conversation: Conversation, version: int) -> None:
    ours(conversation, version, **software(version))


@case("ApiVersions", [5, 99, 32767])
def test_unknown_version_is_answered_in_v0(conversation: Conversation, version: int) -> None:
    """Error 35 with a v0 body that lists ApiVersions only; the connection stays open."""
    payload = bytearray(encode_request("ApiVersions", 3, software(3)))
    payload[2:4] = version.to_bytes(2, "big")
    conversation.frame("ApiVersions", 0, bytes(payload))
    ours(conversation, 0)


@case("ApiVersions", [3, 4])
@pytest.mark.parametrize("name", ["", "has space", "-dash", "dash-", "ok.name-1", "ünder", "a" * 300])
def test_software_name(conversation: Conversation, version: int, name: str) -> None:
    ours(conversation, version, **software(version, name=name))


@case("ApiVersions", [3, 4])
@pytest.mark.parametrize("number", ["", "1 0", "-1", "1.0-SNAPSHOT"])
def test_software_version(conversation: Conversation, version: int, number: str) -> None:
    ours(conversation, version, **software(version, number=number))


@case("ApiVersions")
def test_asked_twice_on_one_connection(conversation: Conversation, version: int) -> None:
    ours(conversation, version, **software(version))
    ours(conversation, version, **software(version))
