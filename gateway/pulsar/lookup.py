"""Finds the broker that serves a topic, and a topic's partition count."""

from collections.abc import Awaitable, Callable

from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.connection import Connection
from gateway.pulsar.errors import (
    ConnectionLostError,
    PulsarError,
    RequestTimeoutError,
    ServiceNotReadyError,
    error_from_server,
)
from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

Connect = Callable[[BrokerAddress], Awaitable[Connection]]


class Lookup:
    """Requests lookups from brokers over the binary protocol. `connect` returns a ready connection to an address."""

    def __init__(self, settings: PulsarSettings, connect: Connect) -> None:
        self._connect = connect
        self._tls = settings.service_url.startswith("pulsar+ssl")
        self._max_redirects = settings.max_lookup_redirects
        self._service_urls = settings.service_urls()

    def ask_last(self, url: str) -> None:
        """Try the other service addresses first from now on: this one did not answer, or its connection was lost."""
        if url in self._service_urls:
            self._service_urls.remove(url)
            self._service_urls.append(url)

    async def find_broker(self, topic: str) -> BrokerAddress:
        """The address of the broker that serves `topic`. If no broker does yet, one loads the topic's bundle.

        Raises PulsarError.
        """
        connection = await self._connect_service()
        service_url = connection.address.url
        authoritative = False
        for _ in range(self._max_redirects + 1):
            response = await self._lookup(connection, topic, authoritative)
            address = self._address(response, service_url)
            if response.response == CommandLookupTopicResponse.Connect:
                return address
            connection = await self._connect(address)
            authoritative = response.authoritative
        raise ServiceNotReadyError(f"lookup of {topic} was redirected more than {self._max_redirects} times")

    async def partitions(self, topic: str) -> int:
        """The partition count of a topic, 0 if it is not partitioned. Does not create the topic. Raises PulsarError."""
        connection = await self._connect_service()
        request_id = connection.next_id()
        metadata = CommandPartitionedTopicMetadata(
            topic=topic, request_id=request_id, metadata_auto_creation_enabled=False
        )
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partition_metadata=metadata)
        answer = await self._ask(connection, command, request_id)
        response = answer.partition_metadata_response
        if response.response == CommandPartitionedTopicMetadataResponse.Failed:
            raise error_from_server(response.error, response.message)
        return response.partitions

    async def _lookup(self, connection: Connection, topic: str, authoritative: bool) -> CommandLookupTopicResponse:
        request_id = connection.next_id()
        lookup = CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
        command = BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=lookup)
        answer = await self._ask(connection, command, request_id)
        response = answer.lookup_topic_response
        if response.response == CommandLookupTopicResponse.Failed:
            raise error_from_server(response.error, response.message)
        return response

    async def _ask(self, connection: Connection, command: BaseCommand, request_id: int) -> BaseCommand:
        try:
            return await connection.request(command, request_id)
        except RequestTimeoutError:
            self.ask_last(connection.address.url)
            raise

    def _address(self, response: CommandLookupTopicResponse, service_url: str) -> BrokerAddress:
        url = response.broker_service_url_tls if self._tls else response.broker_service_url
        if not url:
            raise PulsarError(f"the broker offers no {'TLS' if self._tls else 'plain'} address")
        if response.proxy_through_service_url and url != service_url:
            host, port = BrokerAddress(url).host_port()
            return BrokerAddress(service_url, proxy_to=f"{host}:{port}")
        return BrokerAddress(url)

    async def _connect_service(self) -> Connection:
        """Try each service address in turn. The address that failed last is tried last."""
        failure: ConnectionLostError | None = None
        for url in list(self._service_urls):
            try:
                return await self._connect(BrokerAddress(url))
            except ConnectionLostError as error:
                failure = error
                self.ask_last(url)
        assert failure is not None
        raise failure
