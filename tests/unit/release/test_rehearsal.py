"""The rehearsal's index is one that pip can install from, and a tag of another version is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from release import rehearsal
from release.rehearsal import RehearsalError, clone, is_of, make_index, served


@pytest.mark.parametrize(
    ("file", "project"),
    [
        ("kafkagroup-0.1.0-py3-none-any.whl", "kafkagroup"),
        ("kafkagroup-0.1.0.tar.gz", "kafkagroup"),
        ("kafkagroup_native-0.1.0-cp310-abi3-manylinux_2_17_x86_64.whl", "kafkagroup-native"),
        ("kafkagroup_native-0.1.0.tar.gz", "kafkagroup-native"),
        ("SHA256SUMS", None),
    ],
)
def test_a_file_is_of_one_project(file: str, project: str | None) -> None:
    assert [one for one in rehearsal.PROJECTS if is_of(one, Path(file))] == ([project] if project else [])


def test_pip_finds_a_wheel_in_the_index(tmp_path: Path) -> None:
    dist, taken = tmp_path / "dist", tmp_path / "taken"
    dist.mkdir()
    (dist / "kafkagroup-0.1.0-py3-none-any.whl").write_bytes(b"a wheel")
    with served(make_index(dist, tmp_path / "index")) as address:
        command = [sys.executable, "-m", "pip", "download", "--isolated", "--no-deps", "--index-url", address]
        done = subprocess.run(
            [*command, "--dest", str(taken), "kafkagroup"], capture_output=True, text=True, check=False
        )
    # pip has downloaded the wheel and compared its hash; then it finds out that this file is no archive.
    assert "Downloading" in done.stdout, done.stderr
    assert "invalid" in done.stderr


def test_an_index_without_a_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafkagroup-0.1.0.tar.gz").write_bytes(b"an sdist")
    with pytest.raises(RehearsalError, match="has no wheel of kafkagroup"):
        make_index(tmp_path, tmp_path / "index")


def test_a_tag_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    (source / "kafka_source").mkdir(parents=True)
    (source / "kafka_source" / "version.py").write_text('__version__ = "0.2.0"\n')
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v0.1.0"], ["tag", "v0.2.0"]):
        subprocess.run([*git, *command], cwd=source, check=True)
    monkeypatch.setattr(rehearsal, "ROOT", source)
    assert clone("v0.2.0", tmp_path / "right").is_dir()
    with pytest.raises(RehearsalError, match=r"the tag v0\.1\.0 has version 0\.2\.0; its name must be v0\.2\.0"):
        clone("v0.1.0", tmp_path / "wrong")
