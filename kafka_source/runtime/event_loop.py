"""An event loop on a daemon thread for synchronous callers, and a wait that can be cancelled at any moment."""

import asyncio

# Imported here, because Python refuses this import after the end of the main thread, when pyarrow may need the module.
import concurrent.futures.thread
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafka_source.runtime.process_cache import ProcessCache

_T = TypeVar("_T")


class _Loop(asyncio.SelectorEventLoop):
    """A loop that runs blocking work, also of asyncio's resolver, in its own threads.

    Python's pools accept no work when the main thread has ended, although other threads continue.
    """

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        answer: asyncio.Future[_T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                notify(answer.set_exception, error)
            else:
                notify(answer.set_result, result)

        def notify(setter: Callable[[Any], None], value: object) -> None:
            # The loop may have been closed, because its caller no longer waits.
            with contextlib.suppress(RuntimeError):
                self.call_soon_threadsafe(lambda: None if answer.done() else setter(value))

        try:
            threading.Thread(target=work, name="kafkagroup-work", daemon=True).start()
        except RuntimeError:
            # No thread starts while the interpreter ends (`atexit`), so the loop itself waits.
            work()
        return answer


class EventLoop:
    """An asyncio loop on its own daemon thread. A forked child lacks the thread and needs a new loop; see `shared`."""

    def __init__(self, name: str = "kafkagroup") -> None:
        self._pid = os.getpid()
        self._loop = _Loop()
        self._last: Callable[[], object] | None = None
        # After the end of the loop no thread may start work, because the work would stay pending.
        self._entry, self._ends = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @staticmethod
    def shared() -> "EventLoop":
        """Return the loop that this process shares, created at the first call; a forked child gets a new loop."""
        return _shared.of("kafkagroup-shared")

    @property
    def alive(self) -> bool:
        """Whether the loop accepts work: False after `close`, in a forked child, and while the interpreter ends."""
        return self._pid == os.getpid() and self._thread.is_alive() and not self._ends and not sys.is_finalizing()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run a coroutine on the loop and return its result.

        Raises:
            TimeoutError: The coroutine took longer than `timeout` seconds, and is cancelled.
            RuntimeError: The call is on the loop's own thread, and would block forever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("EventLoop.run was called on the loop's own thread, where it would block forever")
        future = self.spawn(work)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"not done within {timeout:g} s") from None
        finally:
            # After a timeout or Ctrl-C no caller waits for the coroutine, which must not continue.
            future.cancel()

    def spawn(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        """Start a coroutine on the loop; return its future.

        Raises:
            RuntimeError: The loop or the interpreter ends, or the loop belongs to the parent of this forked process.
        """
        if sys.is_finalizing():
            work.close()
            raise RuntimeError("Python has stopped all threads. Close streams before the end of the program.")
        if self._pid != os.getpid():
            work.close()
            raise RuntimeError(
                f"This client belongs to process {self._pid}, from which this process was forked. A forked process has "
                "none of the client's threads. Open a stream or a query in each process."
            )
        with self._entry:
            if not self._ends:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise RuntimeError("This client is closed. Open another one.")

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call a function on the loop's thread as soon as possible."""
        self._loop.call_soon_threadsafe(callback, *args)

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Cancel all tasks, stop the thread and wait for its end.

        Args:
            last: The function to call on the loop's thread when all tasks have ended, for example to close connections.
        """
        if not self.alive:
            return
        with self._entry:
            if self._ends:
                return
            self._last, self._ends = last, True
            self.call_soon(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # A task may start another task at its end, and a thread may start a task until the loop is closed.
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            if self._last is not None:
                self._last()
            # A transport closes its socket in the loop's next round.
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()


# A forked child must not close its parent's loop, because both share the selector, and the parent's polling would stop.
_shared = ProcessCache(EventLoop, usable=lambda loop: loop.alive, max_size=1)


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
