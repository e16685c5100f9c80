"""The APIs of KIP-848 for kafka-python, which lacks them: its codec, and the project's definitions."""

from kafka.protocol.api_message import ApiMessage

_DEFINITIONS = "protocol.kafka.schemas"


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_DEFINITIONS):  # type: ignore[misc, call-arg]
    """Key 68."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_DEFINITIONS):  # type: ignore[misc, call-arg]
    """The assignment is null when it has not changed."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_DEFINITIONS):  # type: ignore[misc, call-arg]
    """Key 69."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_DEFINITIONS):  # type: ignore[misc, call-arg]
    """v1 adds the member type: 0 classic, 1 consumer."""
