"""Settings refuse what cannot work, when they are read."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.pulsar.settings import PulsarSettings


def test_every_address_is_a_url_of_its_own() -> None:
    settings = PulsarSettings(service_url="pulsar+ssl://a:1,b:2", admin_url="https://a:3,b:4/")
    assert settings.service_urls() == ["pulsar+ssl://a:1", "pulsar+ssl://b:2"]
    assert settings.admin_urls() == ["https://a:3", "https://b:4"]


@pytest.mark.parametrize("url", ["localhost:6650", "http://a:1", "pulsar://", "pulsar://a:1,,b:2"])
def test_service_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValidationError):
        PulsarSettings(service_url=url)


@pytest.mark.parametrize("url", ["pulsar://a:1", "https://", "a:8080"])
def test_admin_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValidationError):
        PulsarSettings(admin_url=url)


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "a", "token_file": "b"},
        {"backoff_initial_ms": 10, "backoff_max_ms": 9},
        {"request_timeout_ms": 10, "operation_timeout_ms": 9},
        {"operation_timeout_ms": 0},
        {"no_such_setting": 1},
    ],
)
def test_settings_that_contradict_each_other(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PulsarSettings.model_validate(fields)


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    settings = PulsarSettings(token_file=path)
    path.write_text("one\n")
    assert settings.read_token() == "one"
    path.write_text("two")
    assert settings.read_token() == "two"


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(PulsarSettings.model_validate({"token": "secret"}))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"two\nlines", b"a token"])
def test_a_file_without_a_token(tmp_path: Path, content: bytes) -> None:
    """As if it were missing: who reads it is prepared for that, and tries again."""
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(OSError, match="does not contain a token"):
        PulsarSettings(token_file=path).read_token()
