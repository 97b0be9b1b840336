"""Pauses double up to a limit, and another attempt is made only where that is allowed."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.retry import RetryPolicy, retry, retry_async

AT_ONCE = RetryPolicy(0, 0)


@given(st.integers(-1, 10_000))
def test_pauses_double_up_to_the_longest_with_a_fifth_of_jitter(failures: int) -> None:
    pause = RetryPolicy(0.1, 1.0).pause(failures)
    wanted = 0.1 * 2 ** min(max(0, failures), 10)
    assert min(1.0, 0.8 * wanted) <= pause <= min(1.0, 1.2 * wanted)


class Attempts:
    """Fails with these errors, one after another, and then returns how many attempts there were."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.made = list(errors), 0

    def __call__(self) -> int:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.made

    async def on_a_loop(self) -> int:
        return self()


def sync(attempts: Attempts, **how: object) -> int:
    return retry(attempts, AT_ONCE, **how)  # type: ignore[arg-type]


def on_a_loop(attempts: Attempts, **how: object) -> int:
    return asyncio.run(retry_async(attempts.on_a_loop, AT_ONCE, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize("run", [sync, on_a_loop])
class TestBothLoops:
    def test_an_error_that_passes_is_tried_again(self, run: Callable[..., int]) -> None:
        assert run(Attempts(KeyError(), IndexError()), on=(KeyError, IndexError), deadline=Deadline(60)) == 3

    def test_any_other_error_is_raised_at_once(self, run: Callable[..., int]) -> None:
        attempts = Attempts(KeyError(), ValueError(), KeyError())
        with pytest.raises(ValueError):
            run(attempts, on=KeyError)
        assert attempts.made == 2

    def test_the_last_error_is_raised_when_no_time_is_left(self, run: Callable[..., int]) -> None:
        attempts = Attempts(KeyError("first"), KeyError("second"))
        with pytest.raises(KeyError, match="first"):
            run(attempts, on=KeyError, deadline=Deadline(0))
        assert attempts.made == 1

    def test_the_caller_may_end_it(self, run: Callable[..., int]) -> None:
        seen = []

        def again(error: Exception, failures: int, pause: float) -> bool:
            seen.append((type(error), failures, pause))
            return failures < 1

        with pytest.raises(LookupError):
            run(Attempts(KeyError(), IndexError(), KeyError()), on=LookupError, again=again)
        assert seen == [(KeyError, 0, 0.0), (IndexError, 1, 0.0)]
