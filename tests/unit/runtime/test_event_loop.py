import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from kafka_source.kafka_client import EventLoop


@pytest.fixture
def loop():
    with closing(EventLoop("test-loop")) as made:
        yield made


async def answer() -> int:
    return 42


def test_results_and_errors_come_back(loop):
    async def fails():
        raise KeyError("why")

    assert loop.run(answer()) == 42
    with pytest.raises(KeyError, match="why"):
        loop.run(fails())


def test_what_takes_too_long_is_cancelled(loop):
    cancelled = []

    async def slow():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError, match=r"not done within 0\.1 s"):
        loop.run(slow(), 0.1)
    loop.run(asyncio.sleep(0))
    assert cancelled


def test_it_refuses_to_wait_for_itself(loop):
    async def asks_itself():
        loop.run(answer())

    with pytest.raises(RuntimeError, match="own thread"):
        loop.run(asks_itself())


def test_closing_ends_what_runs_and_may_be_repeated(loop):
    future = loop.spawn(asyncio.sleep(3600))
    loop.close()
    loop.close()
    assert future.cancelled()
    assert not loop.alive


def test_a_forked_child_gets_a_loop_of_its_own():
    ours = EventLoop.shared()
    assert ours.run(answer()) == 42
    child = os.fork()
    if child == 0:
        status = 1
        try:
            theirs = EventLoop.shared()
            status = 0 if theirs is not ours and not ours.alive and theirs.run(answer(), 10) == 42 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert EventLoop.shared() is ours
    assert ours.run(answer()) == 42


def test_a_task_that_another_one_starts_at_its_end_is_cancelled_too():
    loop, started = EventLoop("test-loop"), []

    async def first():
        try:
            await asyncio.sleep(3600)
        finally:
            started.append(asyncio.ensure_future(asyncio.sleep(3600)))

    loop.spawn(first())
    loop.run(answer())
    loop.close()
    (second,) = started
    assert second.cancelled()


def test_a_thread_starts_no_work_while_a_loop_ends(loop):
    refused = []

    def last():
        with ThreadPoolExecutor(1) as pool:
            refused.append(pool.submit(loop.spawn, asyncio.sleep(3600)).exception())

    loop.close(last)
    assert [str(one) for one in refused] == ["This client is closed. Open another one."]
