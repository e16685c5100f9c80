"""Encoders, compiled for one version of one message: a function without branches on the version.

They take any object with the schema's field names as attributes, so that frequent responses can be small objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from protocol.kafka.buffers import Buffer, RecordChunks, SharedItems
from protocol.kafka.fields import MAX_STRING_BYTES
from protocol.kafka.lengths import compact_length, varint
from protocol.kafka.schemas.schema import RECORDS, STRUCT, Field, Schema, tagged, untagged
from protocol.kafka.schemas.source import FORMATS, Source, fixed_format, in_runs, is_fixed

Splices = list[tuple[int, RecordChunks]]
"""Records, and the number of parts before them."""
Encode = Callable[[Any, list[Buffer], Splices], None]
"""(message, the parts so far, the splices so far): adds to both."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


def compile_encoder(schema: Schema, version: int) -> Encode:
    """The encoder of a message's body. It raises struct.error or AttributeError for an invalid message."""
    writer = _Encoder(schema, version)
    return writer.function(lambda: writer.struct(schema.fields, "value"))


class _Encoder:
    """Writes the source of one function; `add` appends a part."""

    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._flexible = version in schema.flexible_versions
        self._source = Source(
            short=_SHORT.pack, int=_INT.pack, pack=struct.pack, compact=compact_length, text=_encode_text,
            encode_tags=_encode_tags, share=_share, SharedItems=SharedItems, NO_UUID=bytes(16),
            NULL=b"\0" if self._flexible else _INT.pack(-1),
        )  # fmt: skip

    def function(self, write: Callable[[], None]) -> Encode:
        """`write` emits code that encodes ``value``."""
        self._source.add("def encode(value, parts, splices):")
        self._source.indent()
        self._source.add("add = parts.append")
        write()
        encode: Encode = self._source.compiled("encode", f"<encoder of {self._schema.name} v{self._version}>")
        return encode

    def struct(self, fields: tuple[Field, ...], value: str) -> None:
        source = self._source
        for run in in_runs(untagged(fields, self._version)):
            if is_fixed(run[0]):
                values = ", ".join(f"{value}.{field.name}" for field in run)
                source.add(f"add({source.refer(fixed_format(run).pack)}({values}))")
            else:
                self._field(run[0], f"{value}.{run[0].name}")
        if self._flexible:
            self._tagged_fields(tagged(fields, self._version), value)

    def _tagged_fields(self, fields: list[Field], value: str) -> None:
        tags = self._source.refer([(field.tag, field.name, field.default, self._tag(field)) for field in fields])
        if fields:
            is_default = " and ".join(_is_default(field, f"{value}.{field.name}") for field in fields)
            self._source.add(f'if {is_default}: add(b"\\0")', f"else: encode_tags({tags}, {value}, add)")
        else:
            self._source.add('add(b"\\0")')

    def _tag(self, field: Field) -> Encode:
        writer = _Encoder(self._schema, self._version)
        return writer.function(lambda: writer.value(field))

    def value(self, field: Field) -> None:
        """A single field of any type."""
        if is_fixed(field):
            self._source.add(f"add({self._source.refer(fixed_format([field]).pack)}(value))")
        else:
            self._field(field, "value")

    def _field(self, field: Field, expression: str) -> None:
        if field.is_struct and self._version not in field.nullable_versions:
            item = self._source.local()
            self._source.add(f"{item} = {expression}")
            self.struct(field.fields, item)
        elif field.is_struct:  # KIP-893: a byte before the struct, negative for null.
            item = self._source.local()
            self._source.add(f"{item} = {expression}", f'if {item} is None: add(b"\\xff")', "else:")
            self._source.indent()
            self._source.add('add(b"\\x01")')
            self.struct(field.fields, item)
            self._source.dedent()
        elif field.is_array:
            self._array(field, expression)
        else:
            self._item(field, expression)

    def _item(self, field: Field, expression: str) -> None:
        """A field without a fixed size."""
        source, item = self._source, self._source.local()
        source.add(f"{item} = {expression}")
        if field.kind == "uuid":
            source.add(f"add(NO_UUID if {item} is None else {item}.bytes)")
        elif field.kind == "string":
            null = "NULL" if self._flexible else 'b"\\xff\\xff"'
            source.add(f"if {item} is None: add({null})", "else:")
            encoded = f"text({item})" if self._is_text(field) else f"{item}.encode()"
            source.add(f"    {item} = {encoded}", f"    add({self._length('short', f'len({item})')} + {item})")
        elif field.kind == RECORDS and self._schema.is_response:
            source.add(f"if {item} is None: add(NULL)", "else:")
            source.add(f"    add({self._length('int', f'{item}.size_bytes')})")
            source.add(f"    splices.append((len(parts), {item}))")
        else:
            length = self._length("int", f"len({item})")
            source.add(f"if {item} is None: add(NULL)", f"else: add({length}); add({item})")

    def _is_text(self, field: Field) -> bool:
        """For people. All other strings are names and values, which are never longer than in a request."""
        return self._schema.is_response and field.name.endswith("error_message")

    def _array(self, field: Field, expression: str) -> None:
        source, items = self._source, self._source.local()
        source.add(f"{items} = {expression}", f"if {items} is None: add(NULL)", "else:")
        source.indent()
        source.add(f"add({self._length('int', f'len({items})')})")
        if field.kind in FORMATS:
            source.add(f'add(pack(f">{{len({items})}}{FORMATS[field.kind]}", *{items}))')
        else:
            self._items(field, items)
        source.dedent()

    def _items(self, field: Field, items: str) -> None:
        source, item, first = self._source, self._source.local(), self._source.local()
        source.add(f"if type({items}) is SharedItems and {self._version} in {items}.encoded:")
        source.add(f"    add({items}.encoded[{self._version}])", "else:")
        source.indent()
        source.add(f"{first} = len(parts)", f"for {item} in {items}:")
        source.indent()
        if field.kind == STRUCT:
            self.struct(field.fields, item)
        else:
            self._item(field, item)
        source.dedent()
        source.add(f"if type({items}) is SharedItems: share({items}, {self._version}, parts, {first})")
        source.dedent()

    def _length(self, plain: str, length: str) -> str:
        return f"compact({length})" if self._flexible else f"{plain}({length})"


def _encode_text(text: str) -> bytes:
    """Cut to what fits into a string: an error may quote a string of the request, or Pulsar."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_STRING_BYTES:
        return encoded
    return encoded[:MAX_STRING_BYTES].decode(errors="ignore").encode()


def _share(items: SharedItems[Any], version: int, parts: list[Buffer], first: int) -> None:
    """The parts from `first` on are the items', which hold no records."""
    items.encoded[version] = b"".join(parts[first:])
    parts[first:] = [items.encoded[version]]


def _is_default(field: Field, expression: str) -> str:
    if field.default == ():
        return f"not {expression}"
    return f"{expression} is None" if field.default is None else f"{expression} == {field.default!r}"


def _encode_tags(tags: list[tuple[int, str, Any, Encode]], value: Any, add: Callable[[Buffer], None]) -> None:
    """A struct's tagged fields (KIP-482), those that are not their defaults; they hold no records."""
    encoded: list[tuple[int, bytes]] = []
    for tag, name, default, encode in tags:
        field = getattr(value, name)
        if field != default and not (default == () and not field):
            parts: list[Buffer] = []
            encode(field, parts, [])
            encoded.append((tag, b"".join(parts)))
    add(varint(len(encoded)))
    for tag, data in encoded:
        add(varint(tag) + varint(len(data)) + data)
