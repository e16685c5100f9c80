"""Kafka's primitive record fields as `construct` parts: strings, byte arrays, arrays and tagged fields.

Two encodings exist (KIP-482). Classic: a big-endian signed length, -1 for null. Flexible ("compact"): an unsigned
varint of length + 1, 0 for null, and a tagged-fields section at the end of every struct.
https://kafka.apache.org/protocol#protocol_types
"""

from typing import Any, NamedTuple

from construct import (
    Adapter,
    Bytes,
    Construct,
    ConstructError,
    Container,
    Default,
    ExprAdapter,
    GreedyBytes,
    Int16sb,
    Int32sb,
    Prefixed,
    PrefixedArray,
    Struct,
    VarInt,
    stream_read,
    stream_write,
)

MAX_STRING_BYTES = 32_767
"""Of a string behind an int16 length."""
MAX_CHARACTER_BYTES = 4
"""In UTF-8."""


class Lengthed(Construct):  # type: ignore[misc]
    """A length, then that many bytes of UTF-8 text or raw data; a length below zero is None.

    `bias` is subtracted from the length: 0 in the classic encoding, 1 in the compact one.
    """

    def __init__(self, length: Construct, bias: int, *, text: bool, nullable: bool) -> None:
        super().__init__()
        self._length, self._bias, self._text, self._nullable = length, bias, text, nullable

    def _parse(self, stream: Any, context: Any, path: str) -> str | bytes | None:
        length = self._length._parsereport(stream, context, path) - self._bias
        if length < 0:
            if length < -1 or not self._nullable:
                raise ConstructError(f"length {length} is not allowed", path)
            return None
        data: bytes = stream_read(stream, length, path)
        return data.decode() if self._text else data

    def _build(self, obj: str | bytes | None, stream: Any, context: Any, path: str) -> Any:
        if obj is None and not self._nullable:
            raise ConstructError("null is not allowed", path)
        data = obj.encode() if isinstance(obj, str) else obj
        self._length._build(self._bias + (-1 if data is None else len(data)), stream, context, path)
        if data:
            stream_write(stream, data, len(data), path)
        return obj


class AsDataclass(Adapter):  # type: ignore[misc]
    """A struct that parses to a dataclass; fields that a version lacks keep the dataclass's defaults."""

    def __init__(self, cls: type, **fields: Construct) -> None:
        super().__init__(Struct(**fields))
        self._cls = cls

    def _decode(self, obj: Container[Any], context: Any, path: str) -> Any:
        return self._cls(**{name: value for name, value in obj.items() if name[0] != "_"})

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:
        return {name: getattr(obj, name) for name in obj.__dataclass_fields__}


class RecordType(NamedTuple):
    """One kind of record: the class, format and version of its key; the formats of its value by version, and the one to
    write."""

    key_class: type
    key: Construct
    key_version: int
    values: dict[int, Construct]
    write_version: int


STRING = Lengthed(Int16sb, 0, text=True, nullable=False)
NULLABLE_STRING = Lengthed(Int16sb, 0, text=True, nullable=True)
BYTES = Lengthed(Int32sb, 0, text=False, nullable=False)
COMPACT_STRING = Lengthed(VarInt, 1, text=True, nullable=False)
COMPACT_NULLABLE_STRING = Lengthed(VarInt, 1, text=True, nullable=True)
COMPACT_BYTES = Lengthed(VarInt, 1, text=False, nullable=False)
UUID = Bytes(16)

_COMPACT_COUNT = ExprAdapter(VarInt, lambda count, _: count - 1, lambda count, _: count + 1)
TAGGED_FIELDS = Default(PrefixedArray(VarInt, Struct(tag=VarInt, data=Prefixed(VarInt, GreedyBytes))), [])


def array(element: Construct) -> Construct:
    """An int32 count, then the elements."""
    return PrefixedArray(Int32sb, element)


def compact_array(element: Construct) -> Construct:
    """A varint of count + 1, then the elements."""
    return PrefixedArray(_COMPACT_COUNT, element)
