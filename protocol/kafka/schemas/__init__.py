"""APIs that kafka-python's package lacks: their schemas, in the form that it compiles its own from.

A file is named as its message and holds one of Kafka's message definitions: fields in wire order with their types, the
versions that have them, and their defaults. https://kafka.apache.org/protocol
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__name__):  # type: ignore[misc, call-arg]
    """Key 68 (KIP-848). v1 adds the subscribed regular expression."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__name__):  # type: ignore[misc, call-arg]
    """The assignment is null when it did not change."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc, call-arg]
    """Key 69 (KIP-848)."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc, call-arg]
    """v1 adds the member type: 0 classic, 1 consumer."""
