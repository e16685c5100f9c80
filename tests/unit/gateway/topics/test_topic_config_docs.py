"""What a topic configuration says about its effect is true. docs/guides/configuration-reference.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.topics.topic_configs import DEFAULTS, TOPIC_CONFIGS, Effect, TopicConfig
from gateway.topics.topic_policies import all_policies

BASES: tuple[Mapping[str, str], ...] = ({}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"})
OTHER_VALUES = {"cleanup.policy": "compact", "entry.format": "pulsar", "compression.type": "zstd"}


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
