"""The harness's side of the line protocol, with a small program in place of a client."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.driver import ActionError, Driver, DriverEndedError, NotApplicableError

PROGRAM = """
import sys
from tests.clients.drivers.lines import Unsupported, serve
class Client:
    def error_name(self, error): return type(error).__name__
    def echo(self, text): print("noise"); return text
    def fail(self): raise KeyError("x")
    def lack(self): raise Unsupported("no such thing")
    def end(self): sys.exit("it broke")
serve(Client())
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    repository = str(Path(__file__).parents[3])
    started = Driver([sys.executable, "-c", PROGRAM], "unused", tmp_path / "log", {"PYTHONPATH": repository})
    yield started
    started.kill()


def test_answers_in_order(driver: Driver) -> None:
    driver.send("echo", text="one\ntwo")
    driver.send("echo", text="ünïcode")
    assert [driver.receive(), driver.receive()] == ["one\ntwo", "ünïcode"]


def test_errors_and_missing_features(driver: Driver) -> None:
    assert driver.error("fail") == "KeyError"
    with pytest.raises(ActionError, match="KeyError"):
        driver.call("fail")
    with pytest.raises(NotApplicableError, match="no such thing"):
        driver.call("lack")
    with pytest.raises(NotApplicableError, match="no such call"):
        driver.call("unheard_of")
    with pytest.raises(AssertionError, match="succeeded"):
        driver.error("echo", text="x")


def test_a_client_that_ends(driver: Driver) -> None:
    with pytest.raises(DriverEndedError, match="ended: it broke"):
        driver.call("end")
    assert not driver.running
    with pytest.raises(DriverEndedError):
        driver.send("echo", text="x")


def test_the_end_of_input_ends_the_client(driver: Driver) -> None:
    assert driver.call("echo", text="x") == "x"
    driver.close()
    assert not driver.running
