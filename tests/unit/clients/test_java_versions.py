"""The Java driver is compiled with one `Version.java` for each generation of Kafka's client library."""

import re

import pytest

from tests.clients.clients import JAVA_VERSIONS
from tests.support.gateway_process import REPOSITORY

DRIVER = REPOSITORY / "tests" / "clients" / "drivers" / "java"
CALLED = {
    name for file in DRIVER.glob("*.java") for name in re.findall(r"\bVersion\.(\w+)\(", file.read_text())
}  # fmt: skip


def test_the_driver_calls_some() -> None:
    assert "tokens" in CALLED


@pytest.mark.parametrize("folder", sorted(set(JAVA_VERSIONS.values())))
def test_every_generation_has_the_methods_that_the_driver_calls(folder: str) -> None:
    text = (DRIVER / folder / "Version.java").read_text()
    assert {name for name in CALLED if re.search(rf"\bstatic \w[\w<>, \[\]]* {name}\(", text)} == CALLED
