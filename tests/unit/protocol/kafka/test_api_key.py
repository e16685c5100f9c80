"""The numbers of the APIs are those that kafka-python knows."""

from __future__ import annotations

from kafka.protocol import api_key

from protocol.kafka.api_key import ApiKey


def test_the_numbers_are_those_of_kafka() -> None:
    assert {each.name: int(each) for each in ApiKey} == {each.name: int(api_key.ApiKey[each.name]) for each in ApiKey}
