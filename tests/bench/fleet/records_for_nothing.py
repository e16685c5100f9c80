"""A Pulsar that keeps no records, in front of a real one: `python -m tests.bench.fleet.records_for_nothing SERVICE_URL
ADMIN_URL NAMESPACE...`, in a process of its own.

It acknowledges entries of topics in the namespaces without storing them. For every other topic it names the real
Pulsar, so the gateways have their fleet, their groups and the settings of topics there.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import aiohttp
import uvloop
from aiohttp import web

from deploy.local.standalone import PulsarStandalone
from protocol.pulsar.frames import encode_command
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, CommandLookupTopicResponse
from tests.bench.opening.fake_pulsar import INFO, STATS, Broker
from tests.support.gateway_process import REPOSITORY

HOST = "127.0.0.1"
LEDGERS = {"internal-info": INFO, "internalStats": STATS, "trim": b""}
"""Answers to these requests about a topic whose records are not kept."""
_BETWEEN_HOSTS = frozenset({"Host", "Content-Length", "Transfer-Encoding", "Connection", "Content-Encoding"})
"""Headers that are not passed on."""


class FreePulsar(NamedTuple):
    process: "subprocess.Popen[str]"
    service_url: str
    admin_url: str


@contextmanager
def records_for_nothing(pulsar: PulsarStandalone, namespaces: Iterable[str]) -> Iterator[FreePulsar]:
    """Runs it in front of `pulsar`. Namespaces have their tenant's name."""
    module = ["-m", "tests.bench.fleet.records_for_nothing"]
    command = [sys.executable, *module, pulsar.service_url, pulsar.admin_url, *namespaces]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        broker, admin = process.stdout.readline().split()
        yield FreePulsar(process, f"pulsar://{HOST}:{broker}", f"http://{HOST}:{admin}")
        process.stdin.close()


class RecordsBroker(Broker):
    def __init__(self, own_url: str, real_url: str, namespaces: Sequence[str]) -> None:
        super().__init__(own_url)
        self._real_url = real_url
        self._here = tuple(f"persistent://{namespace}/" for namespace in namespaces)

    def _lookup(self, command: BaseCommand) -> bytes:
        if command.lookup_topic.topic.startswith(self._here):
            return super()._lookup(command)
        response = CommandLookupTopicResponse(
            request_id=command.lookup_topic.request_id, broker_service_url=self._real_url, authoritative=True,
            response=CommandLookupTopicResponse.Connect,
        )  # fmt: skip
        return encode_command(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_topic_response=response))


class RecordsAdmin:
    """The admin API: the real one, but for ledgers of the topics whose records are not kept."""

    def __init__(self, session: aiohttp.ClientSession, real_url: str, namespaces: Sequence[str]) -> None:
        self._session = session
        self._real_url = real_url
        self._here = tuple(f"/admin/v2/persistent/{namespace}/" for namespace in namespaces)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        what = request.path.rpartition("/")[2]
        if what in LEDGERS and request.path.startswith(self._here):
            return web.Response(body=LEDGERS[what], content_type="application/json")
        async with self._session.request(
            request.method, f"{self._real_url}{request.raw_path}", headers=_passed_on(request.headers),
            data=await request.read(), allow_redirects=False,
        ) as answer:  # fmt: skip
            return web.Response(status=answer.status, headers=_passed_on(answer.headers), body=await answer.read())


def _passed_on(headers: "Sequence[tuple[str, str]] | aiohttp.typedefs.LooseHeaders") -> dict[str, str]:
    return {name: value for name, value in dict(headers).items() if name not in _BETWEEN_HOSTS}


async def _serve(service_url: str, admin_url: str, namespaces: Sequence[str]) -> None:
    """Print both ports, and serve until the end of the standard input."""
    loop = asyncio.get_running_loop()
    urls = [""]
    async with aiohttp.ClientSession() as session:
        broker = await loop.create_server(lambda: RecordsBroker(urls[0], service_url, namespaces), HOST, 0)
        admin = await loop.create_server(
            web.Server(RecordsAdmin(session, admin_url, namespaces).answer, access_log=None), HOST, 0
        )
        ports = [server.sockets[0].getsockname()[1] for server in (broker, admin)]
        urls[0] = f"pulsar://{HOST}:{ports[0]}"
        print(*ports, flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], sys.argv[2], sys.argv[3:]))
