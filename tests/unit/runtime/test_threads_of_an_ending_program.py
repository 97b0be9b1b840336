"""An event loop's threads in a program that ends: after its main thread, at exit, in forked children."""

import asyncio
import textwrap
from contextlib import closing

import pytest

from kafka_source.runtime.event_loop import EventLoop
from tests.support.programs import run_python

_WORK = """
import asyncio, atexit, sys, threading, time
from kafka_source.runtime.event_loop import EventLoop

async def both(loop):
    asked = await asyncio.get_running_loop().run_in_executor(None, lambda: 6 * 7)
    return asked, (await asyncio.get_running_loop().getaddrinfo("localhost", 9092))[0][4][1]

def work():
    loop = EventLoop("ends")
    try:
        print(*loop.run(both(loop), 10))
    finally:
        loop.close()
"""
_AFTER_MAIN = """
def later():
    threading.main_thread().join()
    time.sleep(0.2)
    work()

threading.Thread(target=later).start()
"""
_AT_EXIT = """
loop = EventLoop("ends")
atexit.register(lambda: print(*loop.run(both(loop), 10)))
"""


@pytest.mark.parametrize("when", (_AFTER_MAIN, _AT_EXIT), ids=("after the main thread", "at exit"))
def test_work_and_names_are_not_refused_in_a_program_that_ends(when):
    done = run_python("-c", _WORK + textwrap.dedent(when))
    assert (done.stdout, done.stderr, done.returncode) == ("42 9092\n", "", 0)


def test_a_forked_child_is_refused_its_parents_loop_and_does_not_hang():
    forks = """
        import os
        loop = EventLoop("parent")
        if not (child := os.fork()):
            try:
                loop.run(asyncio.sleep(0), 5)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    done = run_python("-c", _WORK + textwrap.dedent(forks))
    assert "from which this process was forked" in done.stdout


def test_work_on_a_thread_returns_its_result_or_its_error():
    loop = EventLoop("threads")

    async def ask(work):
        return await asyncio.get_running_loop().run_in_executor(None, work)

    with closing(loop):
        assert loop.run(ask(lambda: 1)) == 1
        with pytest.raises(ZeroDivisionError):
            loop.run(ask(lambda: 1 // 0))
