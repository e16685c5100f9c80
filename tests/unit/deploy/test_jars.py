"""The cache of jars, with a script in place of Maven."""

import threading
from pathlib import Path

import pytest

from deploy.local import jars

POM = "<project/>"
# Writes one jar into -DoutputDirectory and counts its runs.
GOOD_MAVEN = """#!/bin/sh
for arg; do case "$arg" in -DoutputDirectory=*) dir="${arg#*=}";; esac; done
echo "Downloaded from central: https://host/a/1/a-1.jar (1.5 MB at 3 MB/s)"
echo run >> "$RUNS"
: > "$dir/a-1.jar"
"""
BAD_MAVEN = "#!/bin/sh\necho '[ERROR] no such artifact'\nexit 1\n"


@pytest.fixture
def pom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    path = tmp_path / "thing.xml"
    path.write_text(POM)
    install_maven(tmp_path, monkeypatch, GOOD_MAVEN)
    return path


def install_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(script)
    maven.chmod(0o755)
    monkeypatch.setattr(jars, "maven_executable", lambda: str(maven))


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_jars_are_fetched_once(tmp_path: Path, pom: Path) -> None:
    first = jars.pom_classpath(pom)
    assert jars.pom_classpath(pom) == first
    folder = Path(first).parent
    assert folder.parent == tmp_path / "cache" / "kafka-gateway" / "jars"
    assert [jar.name for jar in folder.iterdir()] == ["a-1.jar"]
    assert runs(tmp_path) == 1


def test_a_changed_pom_has_jars_of_its_own(tmp_path: Path, pom: Path) -> None:
    first = jars.pom_classpath(pom)
    pom.write_text(POM + "<!-- new version -->")
    assert jars.pom_classpath(pom) != first
    assert runs(tmp_path) == 2


def test_a_failure_shows_what_maven_said_and_leaves_nothing(
    tmp_path: Path, pom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_maven(tmp_path, monkeypatch, BAD_MAVEN)
    with pytest.raises(jars.ResolveError, match=r"thing\.xml(?s:.*)no such artifact"):
        jars.pom_classpath(pom)
    assert [entry.name for entry in jars.cache_dir().iterdir()] == ["lock"]


def test_several_at_once_fetch_once(tmp_path: Path, pom: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(jars.pom_classpath(pom))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert runs(tmp_path) == 1


def test_one_artifact_needs_no_pom_file(tmp_path: Path, pom: Path) -> None:
    first = jars.artifact_classpath("org.example", "thing", "1.2")
    assert jars.artifact_classpath("org.example", "thing", "1.2") == first
    assert jars.artifact_classpath("org.example", "thing", "1.3") != first
    assert runs(tmp_path) == 2
    written = (jars.cache_dir() / "poms" / "thing-1.2.xml").read_text()
    assert "<groupId>org.example</groupId><artifactId>thing</artifactId><version>1.2</version>" in written


@pytest.mark.parametrize("name", ["pulsar", "kafka"])
def test_poms_of_the_project_name_no_registry(name: str) -> None:
    text = (jars.POM_DIR / f"{name}.xml").read_text()
    addresses = [part.split("</url>")[0] for part in text.split("<url>")[1:]]
    assert set(addresses) <= {"https://repository.invalid"}
