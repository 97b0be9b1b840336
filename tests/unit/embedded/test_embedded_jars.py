"""Real Ivy runs, on a Maven repository in a folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafkagroup.embedded import JarsError, kafka_jars, resolve
from kafkagroup.embedded.jars import cache_dir


def publish(repository: Path, artifact: str, depends_on: str | None = None) -> None:
    folder = repository / "org" / "example" / artifact / "1.0"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{artifact}-1.0.jar", "w") as jar:
        jar.writestr("name", artifact)
    dependency = (
        f"<dependencies><dependency><groupId>org.example</groupId><artifactId>{depends_on}</artifactId>"
        "<version>1.0</version></dependency></dependencies>"
        if depends_on
        else ""
    )
    (folder / f"{artifact}-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        f"<artifactId>{artifact}</artifactId><version>1.0</version>{dependency}</project>"
    )


def use_repository(monkeypatch: pytest.MonkeyPatch, folder: Path, root: str) -> None:
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="only"/><resolvers>'
        f'<ibiblio name="only" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("KAFKAGROUP_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("KAFKAGROUP_CACHE", str(folder / "cache"))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    publish(root, "upper", depends_on="lower")
    publish(root, "lower")
    use_repository(monkeypatch, tmp_path, root.as_uri())
    return root


def test_jars_come_alone_or_with_what_they_need_and_stay_in_the_cache(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    alone = resolve(["org.example:upper:1.0"], on_progress=said.append)
    assert [jar.name for jar in alone] == ["upper-1.0.jar"]
    assert said[0].startswith("Resolving org.example:upper:1.0 into")
    assert said[-1] == "Resolved 1 files"
    together = resolve(["org.example:upper:1.0"], transitive=True)
    assert [jar.name for jar in together] == ["lower-1.0.jar", "upper-1.0.jar"]
    # The second time neither a repository nor Java is needed, and nothing half done was left.
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("KAFKAGROUP_IVY_SETTINGS", "/nowhere")
    assert resolve(["org.example:upper:1.0"]) == alone
    assert not list((cache_dir() / "jars").glob(".resolving-*"))


def test_two_processes_download_once(repository: Path) -> None:
    code = "import sys; from kafkagroup.embedded import resolve; resolve(['org.example:upper:1.0'], on_progress=print)"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(output.count("Resolved 1 files") for output in outputs) == 1


def test_an_empty_cache_without_a_network_says_what_can_be_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Nobody listens on port 1.
    use_repository(monkeypatch, tmp_path, "http://127.0.0.1:1/")
    with pytest.raises(JarsError) as caught:
        kafka_jars()
    message = str(caught.value)
    assert "org.apache.kafka:kafka_2.13:" in message
    assert str(tmp_path / "cache") in message
    assert "KAFKAGROUP_IVY_SETTINGS" in message
    assert "Connection refused" in message
    assert not [path for path in (tmp_path / "cache" / "jars").iterdir() if path.suffix != ".lock"]


def test_an_artifact_that_does_not_exist_is_named(repository: Path) -> None:
    with pytest.raises(JarsError, match=r"org\.example:absent:1\.0 is not in the cache"):
        resolve(["org.example:absent:1.0"])


def test_a_cache_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KAFKAGROUP_CACHE", str(tmp_path / "file"))
    with pytest.raises(JarsError, match=rf"{tmp_path / 'file'}.*cannot be written.*KAFKAGROUP_CACHE"):
        resolve(["org.example:upper:1.0"])


@pytest.mark.parametrize("coordinate", ["kafka", "org.apache.kafka:kafka", "a:b:c:d", "a::c"])
def test_a_coordinate_must_have_three_parts(coordinate: str) -> None:
    with pytest.raises(ValueError, match="group:artifact:version"):
        resolve([coordinate])


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKAGROUP_CACHE", str(tmp_path / "chosen"))
    assert cache_dir() == tmp_path / "chosen"
    monkeypatch.delenv("KAFKAGROUP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "kafkagroup"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "kafkagroup"
    monkeypatch.setenv("HOME", "")
    assert cache_dir().is_absolute()
