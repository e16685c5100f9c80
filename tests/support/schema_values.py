"""Values for every field of Kafka's message definitions, and kafka-python's field-by-field codec to compare with.

That codec shares no code with `protocol.kafka`, only the JSON files of the APIs that kafka-python lacks.
"""

import io
import uuid
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.schemas import BaseField, StructField, load_json

from gateway.handlers.table import APIS
from gateway.requests.call import Api
from protocol.kafka import schemas
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.messages.message import Message

ALL_VERSIONS = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]

_NO_UUID = uuid.UUID(int=0)
_SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.none() | st.uuids().filter(lambda value: value != _NO_UUID),
    "string": st.text(max_size=6) | st.text(alphabet="x", min_size=126, max_size=130),
    "bytes": st.binary(max_size=6),
    "records": st.binary(max_size=200),
    "bitfield": st.none() | st.sets(st.integers(0, 30)),
}


def name_of(parameter: object) -> str | None:
    """The API's name, as a test id of pytest."""
    return parameter.name if isinstance(parameter, Api) else None


def witness(message: type[Message]) -> Any:
    """kafka-python's codec of a message."""
    return _witness(message.__name__)[0]


def is_flexible(message: type[Message], version: int) -> bool:
    first, last = BaseField.parse_versions(_witness(message.__name__)[1])
    return bool(first <= version <= last)


@cache
def _witness(name: str) -> tuple[Any, str]:
    """(codec, flexible versions)."""
    own = resources.files(schemas).joinpath(f"{name}.json").is_file()
    definition = load_json(name, package=schemas if own else None)
    return StructField(definition), definition["flexibleVersions"]


def values(message: type[Message], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Messages as nested dictionaries, with the fields of one version."""
    return _values(message.__name__, version)


@cache
def _values(name: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    return _struct(_witness(name)[0], version)


def _struct(field: Any, version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({part.name: _value(part, version) for part in _fields(field, version)})


def _value(field: Any, version: int) -> st.SearchStrategy[Any]:
    if field.is_array():
        inner = field.array_of
        # The schema marks the items of a nullable array as nullable too; they are not.
        items = _struct(inner, version) if inner.is_struct() else _SIMPLE[inner.type_str]
        strategy: st.SearchStrategy[Any] = st.lists(items, max_size=3)
    elif field.is_struct():
        strategy = _struct(field, version)
    else:
        strategy = _SIMPLE[field.type_str]
    nullable = field.nullable_for_version_q(version) or (field.is_struct() and field.tag is not None)
    return st.none() | strategy if nullable else strategy


def _fields(field: Any, version: int) -> list[Any]:
    return [*field.untagged_fields(version), *field.tagged_fields(version)._fields]


def encode(message: type[Message], version: int, value: dict[str, Any]) -> bytes:
    """Encode the body, field by field."""
    flexible = is_flexible(message, version)
    return bytes(witness(message).encode(value, version=version, compact=flexible, tagged=flexible))


def decode(message: type[Message], version: int, body: bytes) -> dict[str, Any]:
    """Decode the body, field by field; all bytes must be used."""
    flexible = is_flexible(message, version)
    data = io.BytesIO(body)
    decoded = witness(message).decode(data, version=version, compact=flexible, tagged=flexible)
    assert data.read() == b""
    value: dict[str, Any] = as_dict(witness(message), version, decoded)
    return value


def as_dict(field: Any, version: int, decoded: Any) -> Any:
    """A decoded message as `values` gives it."""
    if decoded is None:
        return None
    if field.is_array():
        return [as_dict(field.array_of, version, item) for item in decoded]
    if field.is_struct():
        return {part.name: as_dict(part, version, _get(decoded, part)) for part in _fields(field, version)}
    return b"".join(decoded.chunks) if isinstance(decoded, RecordChunks) else decoded


def _get(decoded: Any, field: Any) -> Any:
    if isinstance(decoded, dict):
        return decoded.get(field.name, None if field.is_struct() else field.default)
    return getattr(decoded, field.name) if hasattr(decoded, field.name) else field.default


def as_object(field: Any, version: int, value: Any) -> Any:
    """A dictionary as an object with attributes, like the responses of handlers."""
    if value is None:
        return None
    if field.is_array():
        return [as_object(field.array_of, version, item) for item in value]
    if field.is_struct():
        return SimpleNamespace(
            **{part.name: as_object(part, version, value[part.name]) for part in _fields(field, version)}
        )
    return value
