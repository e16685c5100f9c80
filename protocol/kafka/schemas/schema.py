"""A message's definition: its fields in wire order, with their types, the versions that have them, and their defaults.

The form of the JSON files: https://github.com/apache/kafka/blob/3.9.2/clients/src/main/resources/common/message/README.md
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from kafka.protocol.schemas import load_json

STRUCT = "struct"
RECORDS = "records"
RESPONSE = "response"
_LAST_VERSION = 0x7FFF
_NO_VERSIONS = range(0)

Default = bool | int | float | str | bytes | tuple[()] | uuid.UUID | None
"""The empty tuple stands for an empty array."""


class Field(NamedTuple):
    """A field of a message, or of one of its structs. For an array, `kind` and `fields` are those of its items."""

    name: str
    kind: str
    """A type's name in the definitions, such as int32; or `STRUCT`."""
    is_array: bool
    struct_name: str
    fields: tuple[Field, ...]
    versions: range
    nullable_versions: range
    tag: int | None
    tagged_versions: range
    default: Default
    """For a struct that may not be null, None means a struct with the defaults of its fields."""

    @property
    def is_struct(self) -> bool:
        """A single struct, not an array of structs."""
        return self.kind == STRUCT and not self.is_array

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged_versions

    @property
    def may_be_none(self) -> bool:
        """Whether the value may be None in some version: null, an id of zeros, or a struct that is not sent."""
        return bool(self.nullable_versions) or self.kind == "uuid" or (self.is_struct and self.tag is not None)


class Schema(NamedTuple):
    """A request or a response."""

    name: str
    api_key: int
    is_response: bool
    versions: range
    flexible_versions: range
    """The versions with compact lengths and tagged fields (KIP-482)."""
    fields: tuple[Field, ...]


def untagged(fields: tuple[Field, ...], version: int) -> Iterator[Field]:
    """The fields that every message of this version has, in wire order."""
    return (field for field in fields if version in field.versions and not field.is_tagged(version))


def tagged(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The optional fields of a message of this version, by tag."""
    found = [field for field in fields if version in field.versions and field.is_tagged(version)]
    return sorted(found, key=lambda field: field.tag or 0)


@cache
def schema_of(name: str) -> Schema:
    """The definition of a message, for instance of FetchRequest. Raises FileNotFoundError."""
    own = resources.files(__package__).joinpath(f"{name}.json").is_file()
    definition = load_json(name, package=__package__ if own else None)
    return Schema(
        name=definition["name"],
        api_key=definition["apiKey"],
        is_response=definition["type"] == RESPONSE,
        versions=_versions(definition["validVersions"]),
        flexible_versions=_versions(definition["flexibleVersions"]),
        fields=tuple(map(_field, definition["fields"])),
    )


def _field(definition: Mapping[str, Any]) -> Field:
    kind = definition["type"].removeprefix("[]")
    is_array = kind != definition["type"]
    fields = tuple(map(_field, definition.get("fields", ())))
    return Field(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", definition["name"]).lower(),
        kind=STRUCT if fields else kind,
        is_array=is_array,
        struct_name=kind if fields else "",
        fields=fields,
        versions=_versions(definition["versions"]),
        nullable_versions=_versions(definition.get("nullableVersions")),
        tag=definition.get("tag"),
        tagged_versions=_versions(definition.get("taggedVersions")),
        default=_default(() if is_array else STRUCT if fields else kind, definition.get("default", "")),
    )


def _versions(text: str | None) -> range:
    """Parses a range of versions, such as "3+", "0-2", "1" or "none"."""
    if not text or text == "none":
        return _NO_VERSIONS
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    return range(int(first[:-1]), _LAST_VERSION + 1) if first.endswith("+") else range(int(first), int(first) + 1)


def _default(kind: str | tuple[()], text: str | float | bool) -> Default:
    if text == "null" or kind in {STRUCT, "uuid", RECORDS}:
        return None
    if kind == ():
        return ()
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "string":
        return str(text)
    if kind == "bytes":
        return b""
    return float(text or 0) if kind == "float64" else int(str(text or 0), 0)
