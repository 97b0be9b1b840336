"""Waiting for an answer, in such a way that who waits can be stopped at any moment."""

from __future__ import annotations

import asyncio
from typing import TypeVar

_T = TypeVar("_T")


async def answer_within(answer: asyncio.Future[_T], seconds: float) -> _T:
    """Like `asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes with the answer (gh-86296).

    Raises:
        asyncio.TimeoutError: No answer came in time; `answer` is cancelled.
    """
    try:
        done, _ = await asyncio.wait((answer,), timeout=seconds)
    finally:
        answer.cancel()
    if not done:
        raise asyncio.TimeoutError
    return answer.result()
