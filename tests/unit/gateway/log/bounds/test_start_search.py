"""The search for a log's start while the broker is busy: entries come late, and some requests are not answered."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.log.bounds.start_search import FirstOffset, StartSearch
from gateway.log.entries import entry_stream, silent_reader, stored_entries
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic


class BusyTopic(FakeTopic):
    """The admin API answers some requests for entries, and then none."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers
        for number in range(3):
            self.write(b"", 1, "native", number, native=True)

    async def entry(self, topic: str, position: Position) -> Any:
        if not self.answers:
            await asyncio.Event().wait()
        self.answers -= 1
        return await super().entry(topic, position)


@pytest.mark.parametrize("answers", range(4))
async def test_records_do_not_leave_the_log(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_entries, "ANSWER_S", 0.02)
    monkeypatch.setattr(silent_reader, "PATIENCE_S", 0.02)
    monkeypatch.setattr(entry_stream, "SILENT_S", 0.01)
    monkeypatch.setattr(entry_stream, "READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(FakeReader, "deliver", lambda reader: None)
    topic = BusyTopic(answers)
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    if answers:
        assert await search.run() == FirstOffset(0, at_first_entry=True)
    else:
        with pytest.raises(TimeoutError):
            await search.run()
    assert all(reader.closed for reader in topic.readers)
