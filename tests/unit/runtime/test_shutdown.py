"""A driver process that is told to end leaves its group first, wherever the signal meets it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HOLDS_A_LOCK = """
import os, sys, threading, time
from kafka_source.runtime.spark_processes import leave_on_exit
lock = threading.Lock()
def stop():
    with lock:
        with open(sys.argv[1], "a") as told:
            told.write("left" if os.path.getsize(sys.argv[1]) == 0 else "")
leave_on_exit(stop)
print("ready", flush=True)
with lock:
    time.sleep(1)
{then}
"""


def run(tmp_path: Path, *arguments: str, until: bytes, end: Callable[[subprocess.Popen[bytes]], object]) -> str:
    """End a program of Python once it has said a line; return what it has written to the file of its last argument."""
    told = tmp_path / "told"
    command = [sys.executable, "-c", *arguments, str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == until
        end(process)
        # The other end of the pipe is its children's too, so this waits for their end.
        assert process.stdout.read() == b""
    return told.read_text()


@pytest.mark.parametrize("then", ["time.sleep(60)", "pass", "raise ValueError"])
@pytest.mark.parametrize("signals", [1, 2])
def test_the_group_is_left_once_although_the_signal_finds_a_lock_held(tmp_path: Path, then: str, signals: int) -> None:
    def end(process: subprocess.Popen[bytes]) -> None:
        for _ in range(signals):
            process.terminate()

    assert run(tmp_path, HOLDS_A_LOCK.format(then=then), until=b"ready\n", end=end) == "left"


STOPS_BY_ITSELF = """
import sys, time
from kafka_source.runtime.spark_processes import leave_on_exit
def stop():
    print("stopping", flush=True)
    time.sleep(1)
    with open(sys.argv[1], "a") as told:
        told.write("left")
leave_on_exit(stop)()
"""


def test_a_signal_that_comes_while_the_group_is_being_left_waits_for_that(tmp_path: Path) -> None:
    assert run(tmp_path, STOPS_BY_ITSELF, until=b"stopping\n", end=subprocess.Popen.terminate) == "left"


WAITS_IN_A_CALL = """
import os, sys, threading
from kafka_source.runtime.spark_processes import leave_on_exit
def stop():
    with open(sys.argv[1], "a") as told:
        told.write("left")
leave_on_exit(stop)
print("ready", flush=True)
threading.Event().wait(60)
os._exit(1)
"""
STARTS_IT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).wait()"


def test_the_group_is_left_when_the_parent_process_is_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    assert run(tmp_path, STARTS_IT, WAITS_IN_A_CALL, until=b"ready\n", end=subprocess.Popen.kill) == "left"
