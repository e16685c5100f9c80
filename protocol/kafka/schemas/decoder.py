"""Decoders, compiled for one version of one message: a function without branches on the version.

Their input is untrusted. An array cannot have more items than there are bytes left, as in Kafka, so that a large count
alone uses no memory. The strings of requests are limited as in Kafka. Other lengths are checked at the end, where a
message that is cut off is detected.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from protocol.kafka.buffers import RecordChunks
from protocol.kafka.fields import MAX_STRING_BYTES, read_tag_count, read_varint, skip_tagged_fields, take
from protocol.kafka.schemas.schema import RECORDS, STRUCT, Field, Schema, tagged, untagged
from protocol.kafka.schemas.source import FORMATS, Source, fixed_format, in_runs, is_fixed

Decode = Callable[[memoryview, int], tuple[Any, int]]
"""(data, position) to (value, the position after it). The position is beyond the data if the message is cut off."""
Tags = dict[int, tuple[str, Decode]]
"""A struct's tagged fields: their names and decoders."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


def compile_decoder(schema: Schema, version: int, message: type) -> Decode:
    """The decoder of a message's body. It raises struct.error, IndexError, ValueError, OverflowError or MemoryError."""
    writer = _Decoder(schema, version)
    return writer.function(lambda: writer.struct(schema.fields, message, "value"))


class _Decoder:
    """Writes the source of one function; `data` and `pos` are its variables."""

    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._flexible = version in schema.flexible_versions
        self._source = Source(
            new=object.__new__, read_varint=read_varint, take=take, decode_tags=_decode_tags, null=_null,
            too_many=_too_many, too_long=_too_long, RecordChunks=RecordChunks, UUID=uuid.UUID,
            short=_SHORT.unpack_from, int=_INT.unpack_from, unpack_from=struct.unpack_from,
        )  # fmt: skip

    def function(self, write: Callable[[], None]) -> Decode:
        """`write` emits code that assigns to ``value``."""
        self._source.add("def decode(data, pos):")
        self._source.indent()
        write()
        self._source.add("return value, pos")
        decode: Decode = self._source.compiled("decode", f"<decoder of {self._schema.name} v{self._version}>")
        return decode

    def struct(self, fields: tuple[Field, ...], kind: type, target: str) -> None:
        source = self._source
        source.add(f"{target} = new({source.refer(kind)})")
        for run in in_runs(untagged(fields, self._version)):
            if is_fixed(run[0]):
                names = ", ".join(f"{target}.{field.name}" for field in run)
                source.add(f"{names}, = {source.refer(fixed_format(run).unpack_from)}(data, pos)")
                source.add(f"pos += {fixed_format(run).size}")
            else:
                self._field(run[0], kind, f"{target}.{run[0].name}")
        for field in fields:
            if self._version not in field.versions or field.is_tagged(self._version):
                source.add(f"{target}.{field.name} = {self._default(field, kind)}")
        if self._flexible:
            tags = source.refer(self._tags(fields, kind))
            source.add("if data[pos] == 0: pos += 1", f"else: pos = decode_tags({tags}, {target}, data, pos)")

    def _default(self, field: Field, kind: type) -> str:
        if field.default == ():
            return "[]"
        if field.is_struct and not field.may_be_none:
            return f"{self._source.refer(getattr(kind, field.struct_name))}()"
        return repr(field.default)

    def _tags(self, fields: tuple[Field, ...], kind: type) -> Tags:
        return {field.tag or 0: (field.name, self._tag(field, kind)) for field in tagged(fields, self._version)}

    def _tag(self, field: Field, kind: type) -> Decode:
        writer = _Decoder(self._schema, self._version)
        return writer.function(lambda: writer.value(field, kind))

    def value(self, field: Field, kind: type) -> None:
        """A single field of any type."""
        if is_fixed(field):
            self._source.add(f"value, = {self._source.refer(fixed_format([field]).unpack_from)}(data, pos)")
            self._source.add(f"pos += {fixed_format([field]).size}")
        else:
            self._field(field, kind, "value")

    def _field(self, field: Field, kind: type, target: str) -> None:
        if field.is_array:
            self._array(field, kind, target)
        elif field.kind == STRUCT:
            self._nested(field, kind, target)
        else:
            self._item(field, target)

    def _item(self, field: Field, target: str) -> None:
        """A field without a fixed size."""
        if field.kind == "uuid":
            raw = self._source.local()
            self._source.add(f"{raw} = bytes(take(data, pos, 16))", "pos += 16")
            self._source.add(f"{target} = UUID(bytes={raw}) if any({raw}) else None")
            return
        if field.kind == "string":
            length = self._length("short", 2, None if self._schema.is_response else field.name)
        else:
            length = self._length("int", 4)
        self._unless_null(field, length, target)
        read = {
            "string": 'str(data[pos:pos + {0}], "utf-8")',
            "bytes": "bytes(data[pos:pos + {0}])",
            RECORDS: (
                "RecordChunks((bytes(data[pos:pos + {0}]),), {0})" if self._schema.is_response
                else "data[pos:pos + {0}]"
            ),
        }[field.kind]  # fmt: skip
        self._source.add(f"{target} = {read.format(length)}", f"pos += {length}")
        self._source.dedent()

    def _array(self, field: Field, kind: type, target: str) -> None:
        source, count = self._source, self._length("int", 4)
        self._unless_null(field, count, target)
        source.add(f"if {count} > len(data) - pos: too_many({count})")
        if field.kind in FORMATS:
            letter = FORMATS[field.kind]
            source.add(f'{target} = list(unpack_from(f">{{{count}}}{letter}", data, pos))')
            source.add(f"pos += {struct.calcsize('>' + letter)} * {count}")
        else:
            items, item = source.local(), source.local()
            source.add(f"{target} = {items} = []", f"for _ in range({count}):")
            source.indent()
            if field.kind == STRUCT:
                self.struct(field.fields, getattr(kind, field.struct_name), item)
            else:
                self._item(field._replace(nullable_versions=range(0)), item)
            source.add(f"{items}.append({item})")
            source.dedent()
        source.dedent()

    def _nested(self, field: Field, kind: type, target: str) -> None:
        item = self._source.local()
        nullable = self._version in field.nullable_versions
        if nullable:  # KIP-893: a byte before the struct, negative for null.
            self._source.add("pos += 1", f"if data[pos - 1] > 127: {target} = None", "else:")
            self._source.indent()
        self.struct(field.fields, getattr(kind, field.struct_name), item)
        self._source.add(f"{target} = {item}")
        if nullable:
            self._source.dedent()

    def _length(self, plain: str, size: int, limited: str | None = None) -> str:
        """The name of the variable with the length, which is negative for null. `limited` is the name of a string."""
        length = self._source.local()
        if self._flexible:
            self._source.add(
                f"{length} = data[pos]",
                f"if {length} < 128: pos += 1",
                "else:",
                f"    {length}, pos = read_varint(data, pos)",
            )
            if limited is not None:  # only here, where a short string does not pay for it
                self._source.add(f"    if {length} > {MAX_STRING_BYTES + 1}: too_long({limited!r}, {length} - 1)")
            self._source.add(f"{length} -= 1")
        else:
            self._source.add(f"{length}, = {plain}(data, pos)", f"pos += {size}")
        return length

    def _unless_null(self, field: Field, length: str, target: str) -> None:
        nullable = self._version in field.nullable_versions
        self._source.add(f"if {length} < 0: {f'{target} = None' if nullable else f'null({field.name!r})'}", "else:")
        self._source.indent()


def _decode_tags(tags: Tags, target: Any, data: memoryview, position: int) -> int:
    if not tags:
        return skip_tagged_fields(data, position)
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        extent = take(data, position, size)
        position += size
        if tag in tags:
            name, decode = tags[tag]
            value, end = decode(extent, 0)
            if end != size:
                raise ValueError(f"{name} is shorter than its length")
            setattr(target, name, value)
    return position


def _null(name: str) -> None:
    raise ValueError(f"{name} is null")


def _too_long(name: str, length: int) -> None:
    raise ValueError(f"string field {name} had invalid length {length}")


def _too_many(count: int) -> None:
    raise ValueError(f"an array of {count} items in a message that is shorter")
