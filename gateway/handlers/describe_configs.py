"""DescribeConfigs (key 32), v0-v4. v1 sources and synonyms; v3 types and documentation (KIP-569); v4 flexible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka.protocol.admin import DescribeConfigsResponse

from gateway.handlers.call import Call, Response
from gateway.pulsar.errors import PulsarError
from gateway.storage import topic_names
from gateway.storage.errors import KafkaError, error_code
from gateway.storage.topic_configs import TOPIC_CONFIGS, ConfigType
from protocol.kafka.errors import ErrorCode

TOPIC, BROKER = 2, 4
SOURCE_TOPIC, SOURCE_STATIC, SOURCE_DEFAULT = 1, 4, 5

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


async def handle(call: Call) -> Response:
    return DescribeConfigsResponse(results=[await _describe(call, resource) for resource in call.request.resources])


async def _describe(call: Call, resource: Response) -> Response:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind == TOPIC:
            rows = await _topic_rows(call, name)
        elif kind == BROKER:
            rows = _broker_rows(call, name)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    except (KafkaError, PulsarError) as error:
        code = error_code(error)
        call.count_error(code)
        return _Result(error_code=code, error_message=str(error), resource_type=kind, resource_name=name, configs=[])
    return _Result(
        error_code=0, error_message="", resource_type=kind, resource_name=name,
        configs=list(_asked(rows, resource.configuration_keys)),
    )  # fmt: skip


def _asked(rows: Iterable[Response], keys: list[str] | None) -> Iterable[Response]:
    return (row for row in rows if not keys or row.name in keys)


async def _topic_rows(call: Call, name: str) -> list[Response]:
    reason = topic_names.invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    topic = await call.services.topics.get(name, fresh=True)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return [_topic_row(call, config.name, topic.configs) for config in TOPIC_CONFIGS.values()]


def _topic_row(call: Call, name: str, configs: Mapping[str, str]) -> Response:
    config = TOPIC_CONFIGS[name]
    is_set = name in configs
    synonyms = []
    if call.version >= 1 and call.request.include_synonyms:
        known = [(configs[name], SOURCE_TOPIC)] if is_set else []
        known.append((config.default, SOURCE_DEFAULT))
        synonyms = [_Config.DescribeConfigsSynonym(name=name, value=value, source=source) for value, source in known]
    return _Config(
        name=name, value=configs.get(name, config.default), read_only=False, is_default=False,
        config_source=SOURCE_TOPIC if is_set else SOURCE_DEFAULT, is_sensitive=False, synonyms=synonyms,
        config_type=config.kind, documentation=None,
    )  # fmt: skip


def _broker_rows(call: Call, name: str) -> list[Response]:
    node_id = call.services.node.node_id
    if name not in {"", str(node_id)}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        )
    if name == "":
        return []
    kafka, limits = call.services.config.kafka, call.services.config.limits
    known = (
        ("auto.create.topics.enable", ConfigType.BOOLEAN, str(kafka.auto_create_topics).lower()),
        ("broker.id", ConfigType.INT, str(node_id)),
        ("connections.max.idle.ms", ConfigType.LONG, str(limits.connection_idle_ms)),
        ("default.replication.factor", ConfigType.INT, "1"),
        ("fetch.max.bytes", ConfigType.INT, str(limits.max_fetch_bytes)),
        ("message.max.bytes", ConfigType.INT, str(limits.max_message_bytes)),
        ("node.id", ConfigType.INT, str(node_id)),
        ("num.partitions", ConfigType.INT, str(kafka.default_partitions)),
        ("socket.request.max.bytes", ConfigType.INT, str(limits.max_request_bytes)),
    )
    return [
        _Config(
            name=key, value=value, read_only=True, is_default=False, config_source=SOURCE_STATIC, is_sensitive=False,
            synonyms=[], config_type=kind, documentation=None,
        )
        for key, kind, value in known
    ]  # fmt: skip
