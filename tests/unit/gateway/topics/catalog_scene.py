"""A catalog on a fake Pulsar."""

from __future__ import annotations

from gateway.pulsar.admin.topics import TopicPolicy
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import TOPIC_ID
from tests.unit.gateway.log.fake_admin import FakeTopics


class Scene:
    def __init__(self) -> None:
        self.pulsar = FakeTopics()
        self.catalog = self.another_catalog()

    def another_catalog(self, max_age_ms: int = 60_000) -> TopicCatalog:
        return TopicCatalog(self.pulsar.client, "t/n", max_age_ms)

    async def alter(self, catalog: TopicCatalog | None = None, *, validate_only: bool = False, **change: str) -> None:
        named = {name.replace("_", "."): value for name, value in change.items()}
        await (catalog or self.catalog).alter_configs(
            "a", lambda present: {**present, **named}, validate_only=validate_only
        )

    @property
    def policies(self) -> dict[TopicPolicy, object]:
        return self.pulsar.policies["persistent://t/n/a"]

    @property
    def stored(self) -> dict[str, str]:
        found = self.pulsar.properties["persistent://t/n/a"]
        return {name: value for name, value in found.items() if name != TOPIC_ID}
