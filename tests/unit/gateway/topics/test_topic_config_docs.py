"""docs/guides/configuration-reference.md says of every topic configuration what comes of it.

`.venv/bin/python -m tests.unit.gateway.topics.test_topic_config_docs` writes the table anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.topics.topic_configs import DEFAULTS, TOPIC_CONFIGS, Effect, TopicConfig
from gateway.topics.topic_policies import all_policies

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "configuration-reference.md"
HEAD = "| Configuration | Default | Effect | What it is |\n|---|---|---|---|\n"
BASES: tuple[Mapping[str, str], ...] = ({}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"})
OTHER_VALUES = {"cleanup.policy": "compact", "entry.format": "pulsar", "compression.type": "zstd"}


def table() -> str:
    rows = (
        f"| `{config.name}` | {f'`{config.default}`' if config.default else 'empty'} | {config.effect} "
        f"| {config.documentation} |\n"
        for config in sorted(TOPIC_CONFIGS.values(), key=lambda config: config.name)
    )
    return HEAD + "".join(rows)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(), __doc__


@pytest.mark.parametrize("config", TOPIC_CONFIGS.values(), ids=lambda config: config.name)
def test_policies_follow_those_that_are_said_to_become_some(config: TopicConfig) -> None:
    value = OTHER_VALUES.get(config.name, "12345")
    changes = any(
        all_policies({**base, config.name: value}, DEFAULTS, compactable=True)
        != all_policies(base, DEFAULTS, compactable=True)
        for base in BASES
    )
    assert changes == (config.effect is Effect.PULSAR)


@pytest.mark.parametrize("config", TOPIC_CONFIGS.values(), ids=lambda config: config.name)
def test_what_is_kept_says_so(config: TopicConfig) -> None:
    """DescribeConfigs and the tools show the documentation."""
    assert ("without effect" in config.documentation) == (config.effect is Effect.KEPT)


def _write() -> None:
    text = PAGE.read_text()
    start = text.index(HEAD)
    end = text.index("\n\n", start) + 1
    PAGE.write_text(text[:start] + table() + text[end:])


if __name__ == "__main__":
    _write()
