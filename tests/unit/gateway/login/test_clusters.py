"""Logins name a cluster; it is opened, or the login fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from gateway.dispatch import ServedCluster
from gateway.login.credentials import ConfiguredUsers
from gateway.requests.cluster import Cluster, ClusterRefused
from gateway.requests.context import Listener, Principal
from protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, credential_of
from protocol.sasl.scram_forms import FormCounts
from tests.support.tokens import Issuer
from tests.unit.gateway.login.login_scene import PASSWORD, USER, Scene, without_waiting
from tests.unit.gateway.login.test_tokens import verifier_of
from tests.unit.protocol.sasl.test_scram import HonestClient

FIRST, SECOND = "acme/first", "acme/second"


TENANTS_PASSWORD = "of the tenant"


def cluster_of(name: str, **passwords: str) -> ServedCluster:
    """A cluster with users of its own."""
    config = SimpleNamespace(pulsar=SimpleNamespace(full_namespace=name))
    users = ConfiguredUsers({user: SecretStr(password) for user, password in passwords.items()}, b"secret")
    return ServedCluster(cast(Cluster, SimpleNamespace(config=config, security=users)))


class FakeEntrance:
    def __init__(self) -> None:
        self.served = {FIRST: cluster_of(FIRST), SECOND: cluster_of(SECOND, tom=TENANTS_PASSWORD, alice="another")}
        self.homes = {"tom": SECOND, USER: SECOND}
        self.own_users: list[str] = []
        self.entered: list[tuple[str, str | None]] = []

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        if user == "lost":
            raise ClusterRefused("the cluster cannot be opened")
        home = self.homes.get(user)
        return None if home is None else self.served[home]

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        self.own_users += [principal.name] if is_own_user else []
        self.entered.append((principal.name, asked))
        found = self.served.get(asked or FIRST)
        if found is None:
            raise ClusterRefused("cluster is not permitted")
        return found


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


def bearer(token: str, cluster: str | None = None) -> bytes:
    extension = "" if cluster is None else f"logicalCluster={cluster}\x01"
    return f"n,,\x01auth=Bearer {token}\x01{extension}\x01".encode()


async def test_a_user_is_sent_to_its_cluster() -> None:
    entrance = FakeEntrance()
    scene = Scene(entrance=entrance)
    assert (await scene.log_in())["error_code"] == 0
    assert entrance.entered == [(USER, None)] and scene.last.served is entrance.served[FIRST]


@pytest.mark.parametrize("user", [FIRST, SECOND, "role-1", ""])
async def test_a_token_with_a_cluster_for_its_user_name(issuer: Issuer, user: str) -> None:
    entrance = FakeEntrance()
    scene = Scene(tokens=await verifier_of(issuer), entrance=entrance)
    assert (await scene.log_in(user, "token:" + issuer.token("role-1")))["error_code"] == 0
    asked = user if "/" in user else None
    assert entrance.entered == [("role-1", asked)] and scene.last.served is entrance.served[asked or FIRST]


async def test_a_token_and_an_extension(issuer: Issuer) -> None:
    entrance = FakeEntrance()
    scene = Scene(tokens=await verifier_of(issuer), entrance=entrance)
    await scene.shake_hands("OAUTHBEARER")
    assert (await scene.authenticate(bearer(issuer.token("role-1"), SECOND)))["error_code"] == 0
    assert scene.last.served is entrance.served[SECOND]


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_what_is_refused_fails_the_login(issuer: Issuer, mechanism: str) -> None:
    """With the error of a wrong password, so that clients do not learn which clusters exist."""
    scene = Scene(tokens=await verifier_of(issuer), entrance=FakeEntrance())
    wrong = Scene(tokens=await verifier_of(issuer), entrance=FakeEntrance())
    if mechanism == "PLAIN":
        refused = await scene.log_in("acme/third", "token:" + issuer.token("role-1"))
        expected = await wrong.log_in(USER, "not " + PASSWORD)
    else:
        for each in (scene, wrong):
            await each.shake_hands(mechanism)
        refused = await scene.authenticate(bearer(issuer.token("role-1"), "acme/third"))
        await wrong.authenticate(bearer("no.token.atall"))
        expected = await wrong.authenticate(b"\x01")
    assert refused["error_code"] == expected["error_code"] != 0
    assert mechanism == "OAUTHBEARER" or refused["error_message"] == expected["error_message"]
    assert scene.last.principal is None and scene.last.served is None
    assert scene.counted(mechanism, "failed") == 1


async def test_logging_in_again_keeps_the_cluster(issuer: Issuer) -> None:
    entrance = FakeEntrance()
    scene = Scene(tokens=await verifier_of(issuer), max_reauth_ms=60_000, entrance=entrance)
    token = "token:" + issuer.token("role-1")
    assert (await scene.log_in(FIRST, token))["error_code"] == 0
    assert (await scene.log_in(FIRST, token))["error_code"] == 0
    assert (await scene.log_in(SECOND, token))["error_code"] != 0


async def test_a_token_names_its_cluster(issuer: Issuer) -> None:
    tokens = await verifier_of(issuer, cluster_claim="cluster")
    entrance = FakeEntrance()
    scene = Scene(tokens=tokens, entrance=entrance)
    token = issuer.token("role-1", cluster=SECOND)
    assert (await scene.log_in("", "token:" + token))["error_code"] == 0
    assert scene.last.served is entrance.served[SECOND]
    assert (await Scene(tokens=tokens, entrance=entrance).log_in(SECOND, "token:" + token))["error_code"] == 0
    assert (await Scene(tokens=tokens, entrance=entrance).log_in(FIRST, "token:" + token))["error_code"] != 0
    odd = issuer.token("role-1", cluster=7)
    assert (await Scene(tokens=tokens, entrance=entrance).log_in("", "token:" + odd))["error_code"] != 0


async def scram(scene: Scene, user: str, password: str, mechanism: ScramMechanism) -> dict[str, Any]:
    await scene.shake_hands(mechanism.value)
    bare = f"n={user},r=abc"
    challenge = (await scene.authenticate(b"n,," + bare.encode()))["auth_bytes"]
    return await scene.authenticate(HonestClient(mechanism, password).final(bare, bytes(challenge).decode()))


@pytest.mark.parametrize("mechanism", ["PLAIN", *ScramMechanism])
async def test_a_user_of_a_cluster_logs_in_there(mechanism: ScramMechanism | str) -> None:
    """And nowhere else, also if there is a user with the same name."""
    entrance = FakeEntrance()
    scene = Scene(entrance=entrance)
    if isinstance(mechanism, ScramMechanism):
        answer = await scram(scene, "tom", TENANTS_PASSWORD, mechanism)
    else:
        answer = await scene.log_in("tom", TENANTS_PASSWORD)
    assert answer["error_code"] == 0
    assert entrance.entered == [("tom", SECOND)] and entrance.own_users == ["tom"]
    assert scene.last.served is entrance.served[SECOND]


@pytest.mark.parametrize("mechanism", ["PLAIN", *ScramMechanism])
async def test_a_user_that_is_deleted_with_its_cluster_does_not_enter_the_next_one(
    mechanism: ScramMechanism | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is made anew while the client logs in: before its last message, or while its password is checked."""
    entrance = FakeEntrance()
    scene = Scene(entrance=entrance)
    new = cluster_of(SECOND, tom="of another tenant")
    if isinstance(mechanism, ScramMechanism):
        await scene.shake_hands(mechanism.value)
        bare = "n=tom,r=abc"
        challenge = (await scene.authenticate(b"n,," + bare.encode()))["auth_bytes"]
        entrance.served[SECOND] = new
        proof = HonestClient(mechanism, TENANTS_PASSWORD).final(bare, bytes(challenge).decode())
        answer = await scene.authenticate(proof)
    else:
        run = scene.mechanisms.checks.run

        async def run_late(*arguments: Any) -> Any:
            given = await run(*arguments)
            entrance.served[SECOND] = new
            return given

        monkeypatch.setattr(scene.mechanisms.checks, "run", run_late)
        answer = await scene.log_in("tom", TENANTS_PASSWORD)
    assert answer["error_code"] != 0
    assert entrance.entered == []


async def test_a_user_of_another_cluster_is_unknown() -> None:
    entrance = FakeEntrance()
    assert (await Scene(entrance=entrance).log_in("tom", "wrong"))["error_code"] != 0
    entrance.homes["tom"] = FIRST
    assert (await Scene(entrance=entrance).log_in("tom", TENANTS_PASSWORD))["error_code"] != 0
    assert entrance.entered == []


async def test_no_tenant_takes_the_name_of_a_configured_user() -> None:
    entrance = FakeEntrance()
    assert (await Scene(entrance=entrance).log_in(USER, "another"))["error_code"] != 0
    assert (await Scene(entrance=entrance).log_in(USER, PASSWORD))["error_code"] == 0
    assert entrance.own_users == []


class OneUser:
    """A store with one user, who has one password."""

    def __init__(self, user: str, mechanism: ScramMechanism, password: str) -> None:
        self._key = user, mechanism
        self._credential = credential_of(mechanism, password, b"salt", MIN_ITERATIONS)
        self.forms = FormCounts()

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._credential if (user, mechanism) == self._key else None


def two_daves(of_cluster: ScramMechanism) -> Scene:
    """`dave` of the cluster has one mechanism only, and the one of the fleet's own cluster the other."""
    entrance = FakeEntrance()
    config = SimpleNamespace(pulsar=SimpleNamespace(full_namespace=FIRST))
    of_tenant = SimpleNamespace(config=config, security=OneUser("dave", of_cluster, TENANTS_PASSWORD))
    entrance.served[FIRST] = ServedCluster(cast(Cluster, of_tenant))
    entrance.homes["dave"] = FIRST
    scene = Scene(entrance=entrance)
    other = next(each for each in ScramMechanism if each is not of_cluster)
    scene.mechanisms.own = OneUser("dave", other, PASSWORD)
    return scene


@pytest.mark.parametrize("of_cluster", list(ScramMechanism))
async def test_a_user_of_the_cluster_hides_another_one_for_all_mechanisms(of_cluster: ScramMechanism) -> None:
    assert (await two_daves(of_cluster).log_in("dave", PASSWORD))["error_code"] != 0
    for mechanism in ScramMechanism:
        assert (await scram(two_daves(of_cluster), "dave", PASSWORD, mechanism))["error_code"] != 0


@pytest.mark.parametrize("of_cluster", list(ScramMechanism))
async def test_a_user_of_the_cluster_logs_in_with_the_password_that_it_has(of_cluster: ScramMechanism) -> None:
    scene = two_daves(of_cluster)
    assert (await scene.log_in("dave", TENANTS_PASSWORD))["error_code"] == 0
    assert cast(FakeEntrance, scene.entrance).entered == [("dave", FIRST)]
    assert (await scram(two_daves(of_cluster), "dave", TENANTS_PASSWORD, of_cluster))["error_code"] == 0


async def test_a_cluster_that_cannot_be_opened_answers_as_a_wrong_password() -> None:
    lost = await Scene(entrance=FakeEntrance()).log_in("lost", PASSWORD)
    wrong = await Scene(entrance=FakeEntrance()).log_in("tom", "wrong")
    assert lost["error_code"] == wrong["error_code"] != 0 and lost["error_message"] == wrong["error_message"]
