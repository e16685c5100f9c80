"""Rows are compared as multisets."""

from datetime import datetime

from spark_compat.runner.compare import MAX_SHOWN, canonical, differences


def test_rows_are_text_in_one_order() -> None:
    rows = {"t": [(2, b"\xff", None), (1, bytearray(b"a"), datetime(2024, 1, 2))]}
    assert canonical(rows) == {"t": ['[1, "a", "2024-01-02T00:00:00"]', '[2, "\\u00ff", null]']}


def test_nested_rows_and_headers() -> None:
    assert canonical({"t": [("k", [("h", b"1"), ("h", None)], {1: b"x"})]}) == {
        "t": ['["k", [["h", "1"], ["h", null]], {"1": "x"}]']
    }


def test_null_empty_and_missing_are_three_things() -> None:
    rows = canonical({"null": [(None,)], "empty": [(b"",)], "none": []})
    assert rows == {"null": ["[null]"], "empty": ['[""]'], "none": []}


def test_the_same_rows_in_another_order_do_not_differ() -> None:
    assert differences(canonical({"t": [(1,), (2,)]}), canonical({"t": [(2,), (1,)]})) == []


def test_an_additional_row_is_reported() -> None:
    assert differences({"t": ["[1]", "[1]"]}, {"t": ["[1]"]}) == ["t: only Kafka has [1]"]
    assert differences({"t": []}, {"t": ["[1]"]}) == ["t: only the gateway has [1]"]


def test_a_missing_part_is_reported() -> None:
    assert differences({"t": ["[1]"]}, {"u": ["[1]"]}) == ["t: only Kafka has [1]", "u: only the gateway has [1]"]


def test_many_differences_are_cut_short() -> None:
    assert len(differences({"t": [f"[{n}]" for n in range(100)]}, {"t": []})) == MAX_SHOWN
