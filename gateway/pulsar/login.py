"""The login of the client at a broker: its version, its features, and its token."""

from __future__ import annotations

from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.pulsar_commands_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    FeatureFlags,
)

CLIENT_VERSION = "kafka-gateway"
PROTOCOL_VERSION = 19
"""The newest protocol version of which all commands to clients are handled here (v20 adds TOPIC_MIGRATED)."""


def connect_command(address: BrokerAddress, settings: PulsarSettings) -> BaseCommand:
    """The CONNECT command, the first one on a connection. Raises OSError if the token cannot be read."""
    connect = CommandConnect(
        client_version=CLIENT_VERSION,
        protocol_version=PROTOCOL_VERSION,
        feature_flags=FeatureFlags(
            supports_auth_refresh=True, supports_broker_entry_metadata=True, supports_partial_producer=True
        ),
    )
    if address.proxy_to is not None:
        connect.proxy_to_broker_url = address.proxy_to
    token = settings.read_token()
    if token is not None:
        connect.auth_method_name = "token"
        connect.auth_data = token.encode()
    return BaseCommand(type=BaseCommand.CONNECT, connect=connect)


def auth_response(settings: PulsarSettings) -> BaseCommand:
    """The AUTH_RESPONSE command with the current token. Raises OSError if the token cannot be read."""
    response = AuthData(auth_method_name="token", auth_data=(settings.read_token() or "").encode())
    answer = CommandAuthResponse(client_version=CLIENT_VERSION, response=response, protocol_version=PROTOCOL_VERSION)
    return BaseCommand(type=BaseCommand.AUTH_RESPONSE, auth_response=answer)
