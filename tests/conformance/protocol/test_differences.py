"""The table of expected differences, and when an entry fails."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.conformance.differences import DIFFERENCES, Difference
from tests.conformance.normalise import differences

CONFORMANCE = Path(__file__).parents[1]
ENTRY = Difference("test_x::test_y[*]", ("[0].Fetch.error_code",), "for this test")


@pytest.mark.parametrize("entry", DIFFERENCES, ids=lambda entry: entry.case)
def test_entry_names_a_case(entry: Difference) -> None:
    module, _, case = entry.case.partition("::")
    [file] = CONFORMANCE.glob(f"*/{module}.py")
    assert hasattr(import_module(f"tests.conformance.{file.parent.name}.{module}"), case.split("[")[0])


def test_listed_difference_is_accepted() -> None:
    ENTRY.check(differences([{"Fetch": {"error_code": 1}}], [{"Fetch": {"error_code": 0}}]))


def test_listed_difference_that_does_not_occur_fails() -> None:
    same = [{"Fetch": {"error_code": 1}}]
    with pytest.raises(AssertionError, match="no longer differs"):
        ENTRY.check(differences(same, same))


def test_difference_beside_the_listed_one_fails() -> None:
    kafka = [{"Fetch": {"error_code": 1, "session_id": 0}}]
    with pytest.raises(AssertionError, match="more than is listed"):
        ENTRY.check(differences(kafka, [{"Fetch": {"error_code": 0, "session_id": 5}}]))


def test_lists_of_different_lengths_differ_as_a_whole() -> None:
    assert differences([{"a": [1, 2]}], [{"a": [1]}]) == {"[0].a": ([1, 2], [1])}


def test_answers_of_different_kinds_differ_as_a_whole() -> None:
    closed = {"connection": "closed"}
    assert differences([{"Fetch": {"error_code": 0}}], [closed]) == {"[0]": ({"Fetch": {"error_code": 0}}, closed)}
