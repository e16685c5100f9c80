import pytest

from gateway.fetching import delayed_fetch


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "GRACE_S", 0)
