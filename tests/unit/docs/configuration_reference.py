"""docs/guides/configuration-reference.md, generated from the settings and the topic configurations in the code.

`.venv/bin/python -m tests.unit.docs.configuration_reference` writes it; a test fails when it is out of date.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway.config.clusters import ClusterLimits, ClusterSection
from gateway.config.gateway_config import Config, ForwardingSection
from gateway.config.limits import MIB
from gateway.config.listeners import NamedListenerSection
from gateway.config.security import TokensSection
from gateway.topics.topic_configs import TOPIC_CONFIGS
from tests.support.report import table

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "configuration-reference.md"
HEAD = """\
# Configuration reference

Every setting of `gateway.toml`. What to set and why: [configure.md](configure.md). Made from `gateway/config` by
`python -m tests.unit.docs.configuration_reference`.

Units are the last part of a name: `_ms`, `_minutes`, `_bytes`. A key without a default need not be set.
"""
TABLES = ("listeners", "clusters", "cluster_limits", "forwarding", "tokens")
"""Keys that are sections themselves."""
TOPICS = """\
## Configurations of topics

Clients set them with CreateTopics, AlterConfigs and IncrementalAlterConfigs. They are kept as properties of the Pulsar
topic (`kafka.config.…`). Every gateway uses a change within `metadata_max_age_ms`. What to know before you use them:
[configure.md](configure.md#topics).
"""


def page() -> str:
    top_level = [_row(Config, key) for key in Config.model_fields if f"[{key}]" not in sections()]
    parts = [_section(name, model) for name, model in sections().items()]
    parts += ["## Top level\n", _lines(("key", "default", "meaning"), top_level)]
    return "\n".join([HEAD, *parts, TOPICS, topic_table()])


def sections() -> dict[str, type[BaseModel]]:
    """Sections by the name of their table in TOML."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in Config.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            found[f"[{name}]"] = field.annotation
    return found | {
        "[[kafka.listeners]]": NamedListenerSection,
        "[[kafka.clusters]]": ClusterSection,
        "[kafka.cluster_limits]": ClusterLimits,
        "[fleet.forwarding]": ForwardingSection,
        "[security.tokens]": TokensSection,
    }


def topic_table() -> str:
    rows = (
        [f"`{config.name}`", f"`{config.default}`" if config.default else "empty", config.effect, config.documentation]
        for config in sorted(TOPIC_CONFIGS.values(), key=lambda config: config.name)
    )
    return _lines(("configuration", "default", "effect", "meaning"), rows)


def meaning(field: FieldInfo) -> str:
    """The docstring after the field; empty without one."""
    return " ".join((field.description or "").split())


def _section(name: str, model: type[BaseModel]) -> str:
    rows = [_row(model, key) for key in model.model_fields if key not in TABLES]
    return f"## `{name}`\n\n{inspect.getdoc(model)}\n\n" + _lines(("key", "default", "meaning"), rows)


def _row(model: type[BaseModel], key: str) -> list[str]:
    field = model.model_fields[key]
    return [f"`{key}`", _default(field), meaning(field)]


def _default(field: FieldInfo) -> str:
    """The default as TOML writes it."""
    value = field.default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value} ({value // MIB} MiB)" if value >= MIB and value % MIB == 0 else str(value)
    if isinstance(value, tuple):
        return json.dumps([str(each) for each in value])
    return f'"{value}"'


def _lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(table(headings, rows)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
