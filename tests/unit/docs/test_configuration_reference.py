"""The reference has every setting, with its meaning, as the code has it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from gateway.config.gateway_config import Config
from tests.unit.docs import configuration_reference
from tests.unit.docs.configuration_reference import PAGE, meaning, page, sections


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), configuration_reference.__doc__


@pytest.mark.parametrize("model", [*sections().values(), Config], ids=lambda model: model.__name__)
def test_every_setting_says_what_it_does(model: type[BaseModel]) -> None:
    fields = {key: field for key, field in model.model_fields.items() if f"[{key}]" not in sections()}
    assert [key for key, field in fields.items() if not meaning(field).endswith(".")] == []


def test_defaults_are_toml() -> None:
    text = page()
    assert '| `host` | "127.0.0.1" |' in text
    assert '| `trusted_proxies` | ["127.0.0.0/8", "::1/128"] |' in text
    assert "| `auto_create_topics` | true |" in text
    assert "| `max_request_bytes` | 104857600 (100 MiB) |" in text
