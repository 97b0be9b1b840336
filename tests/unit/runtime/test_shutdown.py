"""A driver process that is told to end leaves its group first, wherever the signal meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


@pytest.mark.parametrize("then", ["time.sleep(60)", "pass", "raise ValueError"])
@pytest.mark.parametrize("signals", [1, 2])
def test_the_group_is_left_once_although_the_signal_finds_a_lock_held(tmp_path: Path, then: str, signals: int) -> None:
    told = tmp_path / "told"
    command = [sys.executable, "-c", HOLDS_A_LOCK.format(then=then), str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(signals):
            os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
    assert told.read_text() == "left"


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
    told = tmp_path / "told"
    command = [sys.executable, "-c", STOPS_BY_ITSELF, str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stopping\n"
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
    assert told.read_text() == "left"


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
    told = tmp_path / "told"
    command = [sys.executable, "-c", STARTS_IT, WAITS_IN_A_CALL, str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        # The other end of the pipe is the child's too, so this waits for the end of the child.
        assert parent.stdout.read() == b""
    assert told.read_text() == "left"
