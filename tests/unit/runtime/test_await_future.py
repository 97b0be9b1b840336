"""Waiting for an answer: it comes, it does not, or who waits is stopped."""

import asyncio

import pytest

from kafka_source.runtime.event_loop import answer_within


def test_an_answer_and_a_failure_are_passed_on() -> None:
    async def ask(answer: asyncio.Future[int]) -> int:
        return await answer_within(answer, 10)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        good, bad = loop.create_future(), loop.create_future()
        loop.call_soon(good.set_result, 7)
        loop.call_soon(bad.set_exception, ValueError("no"))
        assert await ask(good) == 7
        with pytest.raises(ValueError, match="no"):
            await ask(bad)

    asyncio.run(run())


def test_what_does_not_come_is_not_waited_for() -> None:
    async def run() -> None:
        answer = asyncio.get_running_loop().create_future()
        with pytest.raises(asyncio.TimeoutError):
            await answer_within(answer, 0.01)
        assert answer.cancelled()

    asyncio.run(run())


def test_who_is_stopped_when_the_answer_comes_is_stopped() -> None:
    """Else what repeats its requests for ever would go on, and its end would be waited for in vain."""

    async def run() -> None:
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(answer_within(answer, 10))
        await asyncio.sleep(0.01)
        answer.set_result(7)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


def test_who_is_stopped_waits_no_longer() -> None:
    async def run() -> None:
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(answer_within(answer, 60))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert answer.cancelled()

    asyncio.run(run())
