from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka, JavaError
from kafkagroup.embedded.java import find_java, java_version


def java_that_prints(folder: Path, text: str, code: int = 0) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
    executable.chmod(0o755)
    return executable


def test_the_java_of_this_machine_is_found() -> None:
    assert java_version(find_java()) >= 17


def test_no_java_says_what_to_install_and_where_to_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"No Java was found.*Install Java 17.*JAVA_HOME"):
        EmbeddedKafka().start()


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=rf"JAVA_HOME is {tmp_path}, but there is no"):
        EmbeddedKafka().start()


@pytest.mark.parametrize(
    ("printed", "version"), [('openjdk version "11.0.22" 2024-01-16', 11), ('java version "1.8.0_392"', 8)]
)
def test_a_java_that_is_too_old_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, version: int
) -> None:
    executable = java_that_prints(tmp_path, printed)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=rf"needs Java 17 or newer, but {executable} is Java {version}\..*JAVA_HOME"):
        EmbeddedKafka().start()


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25-ea"', 25),
    ],
)
def test_new_enough_versions_are_read(tmp_path: Path, printed: str, version: int) -> None:
    assert java_version(java_that_prints(tmp_path, printed)) == version


def test_a_java_that_only_complains_is_shown_with_its_complaint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java_that_prints(tmp_path, "The operation couldn't be completed. Unable to locate a Java Runtime.", code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"not a working Java .*Unable to locate a Java Runtime"):
        find_java()
