"""The end of a stream's driver process: the group is left first. Spark ends it with SIGTERM (seen in 4.2 and 4.3)."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable

_LONGEST_SECONDS = 30.0


def leave_on_exit(stop: Callable[[], None]) -> Callable[[], None]:
    """Call `stop` before this process ends, by itself or by a signal; returns `stop` for those that end it sooner.

    It is called once. Who comes second waits until it is done: Spark's signal comes while its runner stops the reader,
    and the process must not end in the middle of that.

    Not in the signal's handler: it would interrupt the main thread anywhere, and wait for ever for a lock that this
    thread holds. The handler only wakes a thread.

    Args:
        stop: What is to be done.
    """
    leaving, left = threading.Lock(), threading.Event()

    def leave() -> None:
        with leaving:
            if not left.is_set():
                left.set()
                stop()

    atexit.register(leave)
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        woken, wake = os.pipe()
        threading.Thread(target=_leave_on, args=(woken, leave), name="kafkagroup-end", daemon=True).start()
        # Spark sends the signal twice; the second one finds nobody to wake.
        signal.signal(signal.SIGTERM, lambda *_: os.write(wake, b"."))
    return leave


def _leave_on(woken: int, leave: Callable[[], None]) -> None:
    os.read(woken, 1)
    # Whatever hangs: a member that does not end would keep its partitions by its heartbeats.
    latest = threading.Timer(_LONGEST_SECONDS, os._exit, (1,))
    latest.daemon = True
    latest.start()
    try:
        leave()
    finally:
        # An exit in the usual way would tell Spark of an error, and it does not want to hear of it any more.
        os._exit(0)
