"""The Python processes of a Spark driver: start, preparation, detection of the end of query or driver.

Spark ends a stream's process with SIGTERM (seen in 4.2 and 4.3). If the driver's JVM is killed, there is no signal. A
process that waits for Spark's next call sees the end of its connection; one that waits in a join does not, so it checks
its parent from time to time.
"""

from __future__ import annotations

import atexit
import functools
import gc
import itertools
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from kafka_source.runtime.logs import set_up_logging


def driver_pid() -> int:
    """Return the id of the driver's JVM, from one of its Python processes.

    It starts them itself, or has Spark's daemon fork them (`spark.python.use.daemon`), which it has started. A forked
    process has the command line of its parent; where `/proc` does not show it, the parent counts as the driver.
    """
    parent = os.getppid()
    try:
        if Path(f"/proc/{parent}/cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes():
            return parent
        # The second field, the command, may contain spaces and ends with the last parenthesis. The parent's process id
        # is the second field after it.
        return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return parent


def is_alive(process: int) -> bool:
    """Return whether a process of this id runs."""
    try:
        os.kill(process, 0)
    except OSError as error:
        # Another user's process cannot be signalled, but exists.
        return isinstance(error, PermissionError)
    return True


def start_side_process(module: str, arguments: Sequence[str], message: object, pass_fds: Sequence[int] = ()) -> None:
    """Run a module as a process of a session of its own.

    Args:
        module: The module's full name; it runs as `__main__`.
        arguments: Its command line, which every user of the machine can see.
        message: An object that the module reads from its standard input with `side_process_message`. It may
            contain secrets.
        pass_fds: File descriptors that the process inherits.

    Raises:
        OSError: The process cannot be started, or has ended before it read the message.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    # It may end before the caller does; without a process that takes its exit status it would stay as a zombie.
    threading.Thread(target=process.wait, name=f"{module}-exit", daemon=True).start()
    assert process.stdin is not None
    with process.stdin:
        pickle.dump(message, process.stdin)


def side_process_message() -> object:
    """Return the message that `start_side_process` has sent to this process."""
    message: object = pickle.load(sys.stdin.buffer)
    return message


_tasks = itertools.count()


def prepare_worker(log_level: str | None, log_format: str | None = None) -> None:
    """Set up logging; from the second task on, exclude loaded modules from garbage collections.

    Spark's daemon collects garbage after every task, while Spark writes the batch's commit. The first task loads the
    modules.
    """
    set_up_logging(log_level, log_format)
    if next(_tasks) == 1:
        freeze_gc()


@functools.cache
def freeze_gc() -> None:
    """Exclude the current objects of the process from all later garbage collections; once in a process.

    Loaded modules are some 70,000 objects, which a full collection takes 25 to 40 ms to look at. Modules that are
    loaded later are collected as usual.
    """
    gc.freeze()


_MAX_EXIT_SECONDS = 30.0
# Seconds between two checks whether the parent process has died.
_LOOK_SECONDS = 1.0


def leave_on_exit(stop: Callable[[], None]) -> Callable[[], None]:
    """Call `stop` once before this process exits: normally, after SIGTERM, or because its parent process has died.

    Spark's signal arrives while its runner stops the reader, so `stop` may be requested twice at the same time. The
    second request waits until `stop` has returned, so that the process does not exit before.

    The signal handler does not call `stop` itself. It interrupts the main thread anywhere, and `stop` would then wait
    forever for a lock that the main thread holds. Therefore the handler only wakes up another thread.

    Args:
        stop: Leaves the group and closes connections.

    Returns:
        A function that calls `stop` now, unless it was called already.
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
    latest = threading.Timer(_MAX_EXIT_SECONDS, os._exit, (1,))
    latest.daemon = True
    latest.start()
    try:
        leave()
    finally:
        # Not sys.exit: the normal exit would report an error to Spark, which has ended the query already.
        os._exit(0)
