"""Finding Java and Maven, with scripts in their place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.java import MissingToolError, java_build, java_executable, maven_executable


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine has only the programs that the test puts into tmp_path/bin."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    _forget()
    yield
    _forget()


def _forget() -> None:
    java_build.cache_clear()
    java_executable.cache_clear()
    maven_executable.cache_clear()


def install_java(folder: Path, version_line: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "line", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19', 'openjdk version "25-ea"']
)
def test_java_17_and_later_are_taken(tmp_path: Path, line: str) -> None:
    installed = install_java(tmp_path / "bin", line)
    assert java_executable() == str(installed)


@pytest.mark.parametrize(
    ("line", "version"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_402"', 8), ("who knows", 0)]
)
def test_an_old_java_is_refused_with_its_version(tmp_path: Path, line: str, version: int) -> None:
    install_java(tmp_path / "bin", line)
    with pytest.raises(MissingToolError, match=rf"Java 17 or later.*openjdk-17-jre-headless.*is version {version}\."):
        java_executable()


def test_a_missing_java_is_named_with_its_package() -> None:
    with pytest.raises(MissingToolError, match="openjdk-17-jre-headless"):
        java_executable()


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "bin", 'openjdk version "17.0.1"')
    chosen = install_java(tmp_path / "jdk" / "bin", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java_executable() == str(chosen)


def test_a_missing_maven_is_named_with_its_package() -> None:
    with pytest.raises(MissingToolError, match="Debian package maven"):
        maven_executable()
