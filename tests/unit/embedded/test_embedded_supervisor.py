"""The parent process of a node's JVM, with a shell in place of the JVM."""

import select
import subprocess
import sys
from pathlib import Path

import pytest

from kafkagroup.embedded import supervisor


def supervised(folder: Path, script: str, remove: str = "") -> subprocess.Popen[bytes]:
    """Start a supervisor whose child is a shell, and wait until the child has started."""
    command = [sys.executable, "-I", supervisor.__file__, str(folder / "log"), remove, "sh", "-c", script]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert int(started.stdout.readline()) > 0
    return started


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", 128 + 9)])
def test_its_exit_code_is_that_of_its_child_whose_output_is_in_the_log(tmp_path: Path, script: str, code: int) -> None:
    with supervised(tmp_path, f"echo started; {script}") as started:
        assert started.wait(30) == code
    assert (tmp_path / "log").read_text() == "started\n"


def test_a_byte_on_its_standard_input_is_a_signal_for_its_child(tmp_path: Path) -> None:
    with supervised(tmp_path, "sleep 600") as started:
        assert started.stdin is not None
        started.stdin.write(b"T")
        started.stdin.flush()
        assert started.wait(30) == 128 + 15


def test_a_child_that_is_stopped_already_may_be_stopped_again(tmp_path: Path) -> None:
    with supervised(tmp_path, "exec sleep 600") as started:
        assert started.stdin is not None
        assert started.stdout is not None
        for order in (b"S", b"S", b"C", b"S"):
            started.stdin.write(order)
            started.stdin.flush()
            assert select.select([started.stdout], [], [], 10)[0], "the supervisor does not answer"
            assert started.stdout.read(1) == order


def test_it_stops_its_child_and_removes_the_folder_when_its_input_ends(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with supervised(tmp_path, "sleep 600", str(folder)) as started:
        assert started.stdin is not None
        started.stdin.close()
        assert started.wait(30) == 128 + 9
    assert not folder.exists()
