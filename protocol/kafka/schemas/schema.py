"""A message's definition: its fields in wire order, with their types, the versions that have them, and their defaults.

The form of the JSON files: https://github.com/apache/kafka/blob/3.9.2/clients/src/main/resources/common/message/README.md
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

STRUCT = "struct"
RECORDS = "records"
RESPONSE = "response"
_LAST_VERSION = 0x7FFF
_NO_VERSIONS = range(0)
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)

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
    definition = _definition(name)
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    return Schema(
        name=definition["name"],
        api_key=definition["apiKey"],
        is_response=definition["type"] == RESPONSE,
        versions=_versions(definition["validVersions"]),
        flexible_versions=_versions(definition["flexibleVersions"]),
        fields=tuple(_field(each, structs) for each in definition["fields"]),
    )


def _definition(name: str) -> Mapping[str, Any]:
    """The file with this name: the project's own, or that of the kafka-python package."""
    own = Path(__file__).with_name(f"{name}.json")
    text = (own if own.is_file() else _kafka_python() / f"{name}.json").read_text()
    definition: Mapping[str, Any] = json.loads(_COMMENT.sub("", text))
    return definition


@cache
def _kafka_python() -> Path:
    """The folder of its definitions. The package itself is a client: importing it takes 6 MB."""
    package = find_spec("kafka")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "protocol/schemas/resources"


def _field(definition: Mapping[str, Any], structs: Mapping[str, Any]) -> Field:
    """`structs` are the structs that several fields of the message share, by name."""
    kind = definition["type"].removeprefix("[]")
    is_array = kind != definition["type"]
    fields = tuple(_field(each, structs) for each in definition.get("fields", structs.get(kind, ())))
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
