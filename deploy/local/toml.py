"""TOML of sections: enough to write the gateway's configuration files."""

import json
from collections.abc import Mapping
from typing import Any


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Strings, numbers and booleans are written alike in JSON and TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
