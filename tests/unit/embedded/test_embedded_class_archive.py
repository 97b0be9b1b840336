from pathlib import Path

import pytest

from kafkagroup.embedded import BrokerError
from kafkagroup.embedded.java import find_java
from kafkagroup.embedded.tools import archive_options, archive_path, prepare_archive

CLASS_PATH = "/jars/kafka.jar"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("KAFKAGROUP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_archive_is_made_once_for_each_class_path() -> None:
    java = find_java()
    trained: list[Path] = []
    said: list[str] = []

    def train(path: Path) -> None:
        trained.append(path)
        path.write_bytes(b"classes")

    assert archive_options(java, CLASS_PATH) == ()
    for _ in range(2):
        prepare_archive(java, CLASS_PATH, train, said.append)
    assert len(trained) == len(said) == 1
    assert archive_options(java, CLASS_PATH)[0] == f"-XX:SharedArchiveFile={archive_path(java, CLASS_PATH)}"
    assert archive_options(java, "/jars/other.jar") == ()


@pytest.mark.parametrize("fails", [True, False])
def test_a_java_that_makes_none_is_not_asked_again(fails: bool) -> None:
    java, trained = find_java(), []

    def train(path: Path) -> None:
        trained.append(path)
        if fails:
            raise BrokerError("Unrecognized option")

    for _ in range(2):
        prepare_archive(java, CLASS_PATH, train, print)
    assert len(trained) == 1
    assert archive_options(java, CLASS_PATH) == ()


def test_a_cache_that_cannot_be_written_does_not_matter(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    prepare_archive(find_java(), CLASS_PATH, lambda path: None, print)
    assert archive_options(find_java(), CLASS_PATH) == ()
