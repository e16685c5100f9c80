"""The project's Pulsar client and brokers of its own: killed, with tokens, with TLS."""

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pulsar as native
import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, NotAuthorizedError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.entry import encode_message
from tests.integration.servers import running

SECRET = b"a secret of 32 bytes for HS256..."
TIMEOUT_S = 100


@dataclass
class Log:
    """Receipts, entries and the end, in order of arrival."""

    receipts: asyncio.Queue[Position] = field(default_factory=asyncio.Queue)
    entries: asyncio.Queue[Entry] = field(default_factory=asyncio.Queue)
    closed: asyncio.Queue[PulsarError] = field(default_factory=asyncio.Queue)

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.receipts.put_nowait(position)

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        raise AssertionError(error)

    def on_producer_closed(self, error: PulsarError) -> None:
        self.closed.put_nowait(error)

    def on_entry(self, entry: Entry) -> None:
        self.entries.put_nowait(entry)

    def on_reader_closed(self, error: PulsarError) -> None:
        self.closed.put_nowait(error)


def token(subject: str) -> str:
    """A JSON web token signed with SECRET."""

    def part(content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256"}).encode()) + b"." + part(json.dumps({"sub": subject}).encode())
    return (head + b"." + part(hmac.new(SECRET, head, hashlib.sha256).digest())).decode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key for 127.0.0.1."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    directory = tmp_path_factory.mktemp("certificate")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]
) -> Iterator[tuple[PulsarStandalone, int, int]]:
    """A Pulsar that requires tokens, and its TLS ports: binary, then HTTPS."""
    tls_ports = free_port("127.0.0.1"), free_port("127.0.0.1")
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('admin')}",
        "brokerServicePortTls": str(tls_ports[0]),
        "webServicePortTls": str(tls_ports[1]),
        "tlsCertificateFilePath": str(certificate[0]),
        "tlsKeyFilePath": str(certificate[1]),
    }
    server = PulsarStandalone(tmp_path_factory.mktemp("secured"), settings=settings, token=token("admin"))
    with running(server):
        yield server, *tls_ports


async def create_topic(settings: PulsarSettings, topic: str) -> None:
    admin = AdminClient(settings)
    try:
        await admin.topics.create_partitioned(topic, 1, {})
    finally:
        await admin.close()


async def send_and_read(settings: PulsarSettings, topic: str) -> None:
    client, log = PulsarClient(settings), Log()
    try:
        producer = await client.open_producer(topic, log)
        producer.send([encode_message(b"hello")], num_messages=1, publish_time_ms=1)
        reader = await client.open_reader(topic, await log.receipts.get(), log)
        reader.flow(1)
        assert bytes((await log.entries.get()).payload).endswith(b"hello")
    finally:
        await client.close()


def test_a_token_opens_the_door(secured: tuple[PulsarStandalone, int, int], tmp_path: Path) -> None:
    server = secured[0]
    (tmp_path / "token").write_text(token("admin") + "\n")
    settings = PulsarSettings(
        service_url=server.service_url, admin_url=server.admin_url, token_file=tmp_path / "token"
    )  # fmt: skip
    topic = "persistent://public/default/with-token"

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await create_topic(settings, topic)
            await send_and_read(settings, f"{topic}-partition-0")

    asyncio.run(main())
    witness = native.Client(server.service_url, authentication=native.AuthenticationToken(token("admin")))
    reader = witness.create_reader(f"{topic}-partition-0", native.MessageId.earliest)
    assert reader.read_next(TIMEOUT_S * 1000).data() == b"hello"
    witness.close()


@pytest.mark.parametrize(
    "credentials", [None, token("nobody"), token("admin")[:-4] + "AAAA"], ids=["none", "other role", "forged"]
)
def test_without_the_right_token_it_stays_shut(
    secured: tuple[PulsarStandalone, int, int], credentials: str | None
) -> None:
    server = secured[0]
    settings = PulsarSettings.model_validate(
        {"service_url": server.service_url, "admin_url": server.admin_url, "token": credentials}
    )

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            client, admin = PulsarClient(settings), AdminClient(settings)
            with pytest.raises(NotAuthorizedError):
                await client.open_producer("persistent://public/default/shut-partition-0", Log())
            with pytest.raises(AdminError) as refused:
                await admin.namespaces.policies("public/default")
            assert refused.value.status in {401, 403}
            await client.close()
            await admin.close()

    asyncio.run(main())


def tls_settings(secured: tuple[PulsarStandalone, int, int], **fields: object) -> PulsarSettings:
    _, binary_port, https_port = secured
    urls = {"service_url": f"pulsar+ssl://127.0.0.1:{binary_port}", "admin_url": f"https://127.0.0.1:{https_port}"}
    return PulsarSettings.model_validate({**urls, "token": token("admin"), **fields})


@pytest.mark.parametrize("trust", ["certificate", "anything"])
def test_tls(secured: tuple[PulsarStandalone, int, int], certificate: tuple[Path, Path], trust: str) -> None:
    trusting = {"tls_trust_certs": certificate[0]} if trust == "certificate" else {"tls_allow_insecure": True}
    settings = tls_settings(secured, **trusting)
    topic = f"persistent://public/default/tls-{trust}"

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await create_topic(settings, topic)
            await send_and_read(settings, f"{topic}-partition-0")

    asyncio.run(main())


def test_an_unknown_certificate_is_refused(secured: tuple[PulsarStandalone, int, int]) -> None:
    settings = tls_settings(secured, operation_timeout_ms=5_000, request_timeout_ms=5_000)

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            client = PulsarClient(settings)
            with pytest.raises(ConnectionLostError) as refused:
                await client.partitions("persistent://public/default/tls-certificate")
            assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)
            await client.close()

    asyncio.run(main())


@pytest.mark.timeout(300)  # brokers may need a minute to use a bookie again after it was killed
def test_a_killed_broker_comes_back_with_everything_acknowledged(tmp_path: Path) -> None:
    server = PulsarStandalone(tmp_path / "pulsar")
    settings = PulsarSettings(
        service_url=server.service_url, admin_url=server.admin_url, operation_timeout_ms=200_000
    )  # fmt: skip
    topic = "persistent://public/default/killed"

    async def main() -> None:
        client, log = PulsarClient(settings), Log()
        await create_topic(settings, topic)
        producer = await client.open_producer(f"{topic}-partition-0", log)
        for _ in range(10):
            producer.send([b"x"], num_messages=1, publish_time_ms=1)
        acknowledged = [await log.receipts.get() for _ in range(10)]
        server.kill()
        assert isinstance(await log.closed.get(), ConnectionLostError)
        server.start()
        reader = await client.open_reader(f"{topic}-partition-0", "earliest", log)
        reader.flow(100)
        assert [(await log.entries.get()).position for _ in range(10)] == acknowledged
        again = await client.open_producer(f"{topic}-partition-0", log, predecessor=producer)
        again.send([b"x"], num_messages=1, publish_time_ms=1)
        assert (await log.entries.get()).index == 10
        await client.close()

    with running(server):
        asyncio.run(asyncio.wait_for(main(), 240))
