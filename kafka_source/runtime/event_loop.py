"""One event loop on one daemon thread, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafka_source.runtime.process_cache import ProcessCache

_T = TypeVar("_T")


class EventLoop:
    """An asyncio loop on a daemon thread of its own. The thread does not survive a fork: see `shared`."""

    def __init__(self, name: str = "kafkagroup") -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @staticmethod
    def shared() -> EventLoop:
        """Return the process's own loop, made when it is first asked for; a forked child gets a new one."""
        return _shared.of("kafkagroup-shared")

    @property
    def alive(self) -> bool:
        """Whether its thread runs in this process."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Runs a coroutine on the loop and waits for its result.

        Raises:
            TimeoutError: It took longer than `timeout` seconds; it is cancelled.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("EventLoop.run was called from its own thread, where it would wait for ever")
        future = self.spawn(work)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"not done within {timeout:g} s") from None
        finally:
            # Also after Ctrl-C: what nobody waits for must not go on.
            future.cancel()

    def spawn(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        """Starts a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Runs a function on the loop as soon as it can."""
        self._loop.call_soon_threadsafe(callback, *args)

    def close(self) -> None:
        """Cancels everything, stops the thread and waits for it."""
        if not self.alive:
            return
        self.call_soon(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


# A forked child does not close its parent's loop: the selector is the parent's, whose polling would end.
_shared = ProcessCache(EventLoop, usable=lambda loop: loop.alive, most=1)
