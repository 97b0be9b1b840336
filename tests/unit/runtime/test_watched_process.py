"""A watched process runs until its end, whatever has its id afterwards."""

import errno
import os
import subprocess
import threading

import pytest

from kafka_source.runtime.spark_processes import watch_process
from tests.support.waiting import wait_until

HAS_PIDFD = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="macOS knows no more than the id")


@HAS_PIDFD
def test_a_zombie_does_not_run(program: subprocess.Popen[bytes]) -> None:
    runs = watch_process(program.pid)
    assert runs()
    program.kill()
    wait_until(lambda: not runs(), "the program to end")
    assert not watch_process(program.pid)()
    program.wait()
    assert not watch_process(program.pid)()


@HAS_PIDFD
def test_a_thread_is_no_process() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert not watch_process(thread.native_id)()
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_the_id_is_asked_for_where_the_call_is_missing(
    program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(process: int) -> int:
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    runs = watch_process(program.pid)
    assert runs()
    program.kill()
    program.wait()
    assert not runs()
