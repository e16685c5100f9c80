"""What cannot be cleaned yet, and messages of native producers in a log that is cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.log.cleaning import cleaner
from gateway.log.cleaning.cleaner import LogCleaner, Outcome, Rules
from gateway.log.cleaning.garbage import SharedKeysError
from gateway.log.cleaning.past_cleanings import cleaned_to
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.pulsar.position import Position
from protocol.kafka.transaction_marker import MarkerType
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from tests.unit.gateway.log.cleaning.compacting_topic import CleanedScene, read
from tests.unit.gateway.log.transactions.transaction_scene import shared_on

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


class Watched(LogCleaner):
    """Remembers the last outcome."""

    outcome: Outcome | None = None

    async def clean(self, rules: Rules) -> Outcome:
        self.outcome = await super().clean(rules)
        return self.outcome


async def led_scene() -> CleanedScene:
    scene = CleanedScene()
    await scene.lead()
    scene.cleaner = Watched(scene.log)
    return scene


async def puts(scene: CleanedScene, count: int) -> None:
    """Transactions with one record each."""
    for _ in range(count):
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)


def limited_at(scene: CleanedScene) -> Position | None:
    assert isinstance(scene.cleaner, Watched)
    assert scene.cleaner.outcome is not None
    return scene.cleaner.outcome.limited_at


def left(scene: CleanedScene) -> list[int]:
    """The indexes of the entries that are left."""
    return [index for position, index, *_ in scene.topic.entries if position not in scene.topic.compacted_away]


def native(scene: CleanedScene, payload: bytes, count: int = 1, **fields: Any) -> MessageMetadata:
    scene.topic.write(payload, count, "native", 0, native=True)
    metadata = scene.topic.entries[-1][3]
    metadata.MergeFrom(MessageMetadata(**fields))
    return metadata


async def test_how_far_it_came(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader learns it, too."""
    monkeypatch.setattr(cleaner, "_now_ms", lambda: 2_000)
    scene = await led_scene()
    await puts(scene, 4)
    for number, (*_, metadata) in enumerate(scene.topic.entries):
        metadata.publish_time = 1_000 if number < 5 else 1_500
    await scene.clean(Rules(lag_ms=600))
    assert limited_at(scene) == scene.topic.entries[4][0]
    resources = shared_on(scene.topic).resources
    stats = await scene.topic.internal_stats("topic")
    assert await cleaned_to(resources, "topic", stats) == scene.topic.entries[4][0]
    await scene.clean(Rules(lag_ms=500))
    assert limited_at(scene) is None
    assert await cleaned_to(resources, "topic", stats) >= scene.topic.entries[7][0]


async def test_an_open_transaction_limits_it(no_settling: None) -> None:
    scene = await led_scene()
    await puts(scene, 2)
    await scene.put(2, b"k")
    await puts(scene, 2)
    await scene.clean()
    assert limited_at(scene) == scene.topic.entries[3][0]


async def test_what_has_been_there_for_long_is_old_whatever_its_producer_says(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a native producer may be years ahead."""
    monkeypatch.setattr(cleaner, "_now_ms", lambda: 2_000)
    scene = await led_scene()
    native(scene, encode_message(b"v", key=b"native")).publish_time = 2**63
    await scene.log.end.refresh()
    await puts(scene, 3)
    for *_, metadata in scene.topic.entries[1:]:
        metadata.publish_time = 1_000
    await scene.clean(Rules(lag_ms=600))
    assert limited_at(scene) == Position(3, -1)
    assert left(scene) == [*range(7)]
    await scene.clean(Rules(lag_ms=600, old=scene.topic.entries[0][0]))
    assert limited_at(scene) is None
    assert left(scene) == [0, 5]


async def test_an_entry_without_an_offset_ends_no_cleaning(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers give no index to what a native producer sends as no message."""
    scene = await led_scene()
    native(scene, encode_message(b"v", key=b"native"))
    await scene.log.end.refresh()
    await puts(scene, 3)
    entry_at = scene.topic.entry_at

    def without_index(number: int) -> Any:
        entry = entry_at(number)
        if number == 0:
            entry._broker_metadata = None
        return entry

    monkeypatch.setattr(scene.topic, "entry_at", without_index)
    await scene.clean()
    assert limited_at(scene) is None
    assert left(scene) == [0, 5]


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("value", [None, b""])
async def test_a_native_producer_deletes_a_key_behind_what_is_cleaned(
    value: bytes | None, no_settling: None, *, removes: bool
) -> None:
    """Pulsar's compaction would remove the deletion, and an older value would be the newest one again."""
    scene = await led_scene()
    await puts(scene, 2)
    await scene.put(2, b"open")
    properties = [KeyValue(key=b"kafka.removes", value=b"")] if removes else []
    native(scene, encode_message(value, key=b"k"), properties=properties)
    await scene.log.end.refresh()
    with pytest.raises(SharedKeysError):
        await scene.clean()
    assert scene.topic.status == "NOT_RUN"


async def test_an_encrypted_entry_that_claims_to_be_of_a_gateway(no_settling: None) -> None:
    """Its messages cannot be counted."""
    scene = await led_scene()
    await puts(scene, 2)
    claims = {"entry.format": "pulsar", "kafka.batches": "2,0,-1,-1,-1"}
    native(
        scene, b"secret", 2, encryption_keys=[EncryptionKeys(key="k", value=b"v")],
        properties=[KeyValue(key=key.encode(), value=value.encode()) for key, value in claims.items()],
    )  # fmt: skip
    await scene.log.end.refresh()
    await puts(scene, 2)
    scene.topic.compact = compact_nothing(scene)  # type: ignore[method-assign]
    await scene.clean()
    assert limited_at(scene) is None


def compact_nothing(scene: CleanedScene) -> Any:
    async def compact(topic: str) -> None:
        scene.topic.status = "SUCCESS"

    return compact


async def test_no_cleaning_of_an_empty_view_is_limited(no_settling: None) -> None:
    scene = await led_scene()
    await scene.put(1, b"k")
    await scene.end(1, ABORT)
    await scene.clean()
    assert limited_at(scene) is None
    assert await read(scene.log, scene.topic) == {}
    await scene.topic.compact("topic")
    await scene.clean()
    assert limited_at(scene) is None
    assert await cleaned_to(shared_on(scene.topic).resources, "topic", await scene.topic.internal_stats("topic")) > (
        NO_ENTRY
    )
