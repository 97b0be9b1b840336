"""A wait for a future that can be cancelled at any moment."""

from __future__ import annotations

import asyncio
from typing import TypeVar

_T = TypeVar("_T")


async def answer_within(answer: asyncio.Future[_T], seconds: float) -> _T:
    """Return the result of `answer`, as `asyncio.wait_for` does.

    Before Python 3.12, `asyncio.wait_for` loses a cancellation that arrives together with the result (gh-86296).

    Raises:
        asyncio.TimeoutError: No result arrived within `seconds`; `answer` is cancelled.
    """
    try:
        done, _ = await asyncio.wait((answer,), timeout=seconds)
    finally:
        answer.cancel()
    if not done:
        raise asyncio.TimeoutError
    return answer.result()
