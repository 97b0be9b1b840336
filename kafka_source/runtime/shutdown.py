"""Shutdown of a stream's driver process: it leaves its group first.

Spark sends SIGTERM (seen in 4.2 and 4.3). If the driver's JVM is killed, nobody sends anything. A process that waits
for Spark's next call sees the end of its connection; one that waits in a join does not, hence the look at the parent.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import threading
from collections.abc import Callable

_LONGEST_SECONDS = 30.0
# Seconds between two looks whether the parent process has died.
_LOOK_SECONDS = 1.0


def leave_on_exit(stop: Callable[[], None]) -> Callable[[], None]:
    """Call `stop` once before this process exits: normally, after SIGTERM, or because its parent process has died.

    Spark's signal arrives while its runner stops the reader, so `stop` may be requested twice at the same time. The
    second request waits until `stop` has returned: the process must not exit in the middle of it.

    The signal handler does not call `stop` itself. It interrupts the main thread anywhere, and `stop` would then wait
    forever for a lock that the main thread holds. Therefore the handler only wakes up another thread.

    Args:
        stop: Leaves the group and closes connections.

    Returns:
        A function that calls `stop` now, unless it was called before.
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
        threading.Thread(
            target=_leave_on, args=(woken, leave, os.getppid()), name="kafkagroup-end", daemon=True
        ).start()
        # Spark sends the signal twice. The thread wakes up once, so the second signal has no effect.
        signal.signal(signal.SIGTERM, lambda *_: os.write(wake, b"."))
    return leave


def _leave_on(woken: int, leave: Callable[[], None], parent: int) -> None:
    while not select.select([woken], [], [], _LOOK_SECONDS)[0] and os.getppid() == parent:
        pass
    # A limit in case `leave` hangs: a process that does not exit would keep its partitions by its heartbeats.
    latest = threading.Timer(_LONGEST_SECONDS, os._exit, (1,))
    latest.daemon = True
    latest.start()
    try:
        leave()
    finally:
        # Not sys.exit: the normal exit would report an error to Spark, which has ended the query already.
        os._exit(0)
