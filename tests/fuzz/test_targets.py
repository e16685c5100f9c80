"""Every decoder: the kept corpus, then some new inputs. `python -m tests.fuzz` runs any number."""

from __future__ import annotations

import pytest

from tests.fuzz import corpus
from tests.fuzz.all_targets import TARGETS
from tests.fuzz.campaign import Campaign, quiet, try_input

INPUTS = 2_000
SEED = 20_000


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_kept_is_decoded_or_refused(name: str) -> None:
    with quiet():
        wrong = {data: what for data in corpus.load(name) if (what := try_input(TARGETS[name], data)[1])}
    assert not wrong


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_decoded_or_refused(name: str) -> None:
    with quiet():
        result = Campaign(TARGETS[name], SEED).run(INPUTS)
    assert not result.findings
    assert result.outcomes > 2
