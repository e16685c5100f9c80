"""Before login, a name without a user looks like one with a user: one that was created with Kafka's tools, too."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from gateway.config.gateway_config import Config
from gateway.dispatch import ServedCluster
from gateway.login import exchanges
from gateway.login.credentials import ConfiguredUsers
from gateway.login.service import LoginService
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import Cluster
from gateway.security.records import Record, ScramKey, scram_record
from gateway.security.security import Security
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, credential_of
from tests.unit.gateway.login.login_scene import PASSWORD, USER, Scene
from tests.unit.gateway.login.test_clusters import SECOND, TENANTS_PASSWORD, FakeEntrance
from tests.unit.protocol.sasl.test_scram import HonestClient

SHA_256, SHA_512 = ScramMechanism
SALT_OF_KAFKA = re.compile(rb"[0-9a-z]{23,26}")
OF_JAVA = b"1jl4jxsdkfq0h2ms8tqzp3ne0"


def created(users: Mapping[str, Mapping[ScramMechanism, ScramCredential]]) -> Security:
    """The users of a cluster that administrators have created."""
    state = SecurityState()
    for user, credentials in users.items():
        for mechanism, credential in credentials.items():
            state.apply(scram_record(ScramKey(mechanism, user), credential))
    return Security(state, cast(Any, None), None)


def by_java(mechanism: ScramMechanism, iterations: int = MIN_ITERATIONS) -> dict[ScramMechanism, ScramCredential]:
    return {mechanism: credential_of(mechanism, PASSWORD, OF_JAVA, iterations)}


def scene_with(own: Security) -> Scene:
    scene = Scene()
    scene.mechanisms.own = own
    scene.mechanisms.configured = ConfiguredUsers({}, b"secret")
    scene.mechanisms.secret = b"secret"
    return scene


async def challenge(scene: Scene, user: str, mechanism: ScramMechanism = SHA_256) -> tuple[bytes, int]:
    """The salt and the number of iterations."""
    await scene.shake_hands(mechanism.value)
    answer = await scene.authenticate(f"n,,n={user},r=abc".encode())
    fields = dict(part.split("=", 1) for part in bytes(answer["auth_bytes"]).decode().split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


async def test_salts_are_like_those_of_kafkas_tools() -> None:
    own = created({"ann": by_java(SHA_256)})
    salts = [(await challenge(scene_with(own), f"nobody{number}"))[0] for number in range(50)]
    assert all(SALT_OF_KAFKA.fullmatch(salt) for salt in salts) and len({*salts}) == 50
    assert {len(salt) for salt in salts} >= {25, 26}
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}, "130 bits have no larger first digit"
    for _ in range(2):
        assert SALT_OF_KAFKA.fullmatch((await challenge(Scene(), USER))[0]), "a configured user's too"


async def test_salt_and_iterations_of_a_name_stay() -> None:
    own = created({"ann": by_java(SHA_256), "eve": by_java(SHA_256, 8_192)})
    seen = [await challenge(scene_with(own), "nobody") for _ in range(2)]
    assert seen[0] == seen[1]


async def test_iterations_are_those_that_users_have_as_often() -> None:
    users = {f"user{number}": by_java(SHA_256, 8_192 if number % 4 else 10_000) for number in range(8)}
    own = created(users)
    seen = [(await challenge(scene_with(own), f"nobody{number}"))[1] for number in range(100)]
    assert {*seen} == {8_192, 10_000} and 60 < seen.count(8_192) < 90


async def test_salts_of_other_tools() -> None:
    own = created({"ann": {SHA_512: credential_of(SHA_512, PASSWORD, bytes(range(64)), 4_096)}})
    salt, _ = await challenge(scene_with(own), "nobody", SHA_512)
    assert len(salt) == 64 and not SALT_OF_KAFKA.fullmatch(salt)


async def test_a_user_without_this_mechanism_looks_as_a_name_without_a_user() -> None:
    """As there are users who have it, and others."""
    own = created({"ann": by_java(SHA_512, 8_192)})
    salt, iterations = await challenge(scene_with(own), "ann")
    assert SALT_OF_KAFKA.fullmatch(salt) and iterations == (await challenge(scene_with(own), "nobody"))[1]


@pytest.mark.parametrize("users", [{"ann": by_java(SHA_512, 16_384)}, {"ann": by_java(SHA_256, 10_000)}, {}])
async def test_a_password_of_plain_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, users: dict[str, dict[ScramMechanism, ScramCredential]]
) -> None:
    checked = []

    def counting(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
        checked.append((mechanism, iterations))
        return credential_of(mechanism, password, salt, iterations)

    monkeypatch.setattr(exchanges, "credential_of", counting)
    for user in ("ann", "nobody"):
        assert (await scene_with(created(users)).log_in(user, "wrong"))["error_code"] != 0
    assert checked[0] == checked[1]


async def test_each_place_with_users_counts_the_same() -> None:
    """Otherwise many users of the fleet's own cluster would hide what the few of a tenant look like."""
    own = created({f"user{number}": by_java(SHA_256) for number in range(20)})
    entrance = FakeEntrance()
    config = SimpleNamespace(pulsar=SimpleNamespace(full_namespace=SECOND))
    of_tenant = SimpleNamespace(config=config, security=created({"tom": by_java(SHA_256, 8_192)}))
    entrance.served[SECOND] = ServedCluster(cast(Cluster, of_tenant))
    seen = []
    for number in range(60):
        entrance.homes[f"nobody{number}"] = SECOND
        scene = Scene(entrance=entrance)
        scene.mechanisms.own, scene.mechanisms.configured = own, ConfiguredUsers({}, b"secret")
        seen.append((await challenge(scene, f"nobody{number}"))[1])
    assert 15 < seen.count(8_192) < 45


async def test_a_name_of_a_cluster_that_cannot_be_opened_looks_like_any_other() -> None:
    scene = Scene(entrance=FakeEntrance())
    await scene.shake_hands(SHA_256.value)
    first = (await scene.authenticate(b"n,,n=lost,r=abc"))["auth_bytes"]
    final = HonestClient(SHA_256, TENANTS_PASSWORD).final("n=lost,r=abc", bytes(first).decode())
    assert (await scene.authenticate(final))["error_code"] != 0


async def test_all_gateways_of_a_fleet_show_the_same() -> None:
    """Of configured users, of those that were created, and of names without a user."""
    own = created({"ann": by_java(SHA_256)})
    seen = []
    for _ in range(2):  # two gateways, or one before and after a restart
        config = Config.model_validate({"security": {"users": {"root": PASSWORD}}})
        service = await LoginService.start(config, Metrics(), own)
        await service.prepare_users(b"of the fleet")
        scenes = [Scene() for _ in range(4)]
        for scene in scenes:
            scene.mechanisms.configured = service._mechanisms.configured
            scene.mechanisms.own, scene.mechanisms.secret = own, service._mechanisms.secret
        names = ("root", "ann", "nobody")
        seen.append([await challenge(scene, name) for scene, name in zip(scenes[:3], names, strict=True)])
        assert (await scenes[3].log_in("root"))["error_code"] == 0
        await service.close()
    assert seen[0] == seen[1]


async def test_a_fleet_has_one_secret() -> None:
    written: list[Record] = []
    state = SecurityState()

    class Log:
        async def append(self, records: list[Record]) -> None:
            written.extend(records)
            for record in records:
                state.apply(record)

    security = Security(state, cast(SecurityLog, Log()), None)
    assert len(await security.secret()) == 32 and await security.secret() == state.secret
    assert len(written) == 1


async def test_the_users_of_the_configuration_look_like_others() -> None:
    users = ConfiguredUsers({"ann": SecretStr(PASSWORD)}, b"secret")
    found = users.find("ann", SHA_256)
    assert found is not None and SALT_OF_KAFKA.fullmatch(found.salt)
