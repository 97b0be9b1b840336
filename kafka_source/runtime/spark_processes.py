"""The Python processes of a Spark driver: start, preparation, detection of the end of query or driver.

Spark ends a stream's process with SIGTERM (seen in 4.2 and 4.3). If the driver's JVM is killed, Spark sends no signal.
A process that waits for Spark's next call notices the end of its connection to Spark. A process that waits in a join
does not notice the JVM's end, so it checks its parent process regularly.
"""

import atexit
import errno
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

    The JVM starts Python processes itself, or starts Spark's daemon, which forks them (`spark.python.use.daemon`). A
    forked process has the command line of its parent. Without `/proc` the parent counts as the driver.
    """
    parent = os.getppid()
    try:
        if Path(f"/proc/{parent}/cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes():
            return parent
        # The command, the second field, may contain spaces and ends with the last parenthesis. The second field after
        # the command is the parent's process id.
        return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return parent


def watch_process(process: int) -> Callable[[], bool]:
    """Return a function that returns whether the process that has this id now still runs.

    The id alone does not show this: a zombie keeps its id, and another process or thread may get the id later.
    """
    if not hasattr(os, "pidfd_open"):  # macOS
        return functools.partial(is_alive, process)
    try:
        descriptor = os.pidfd_open(process)
    except OSError as error:
        # Sandboxes and Linux before 5.3 lack the call. All other errors are about the process, which has ended.
        return functools.partial(is_alive, process) if error.errno in (errno.ENOSYS, errno.EPERM) else lambda: False
    # The descriptor becomes readable when the process ends.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return lambda: not poll.poll(0)


def is_alive(process: int) -> bool:
    """Return whether a process of this id runs or is a zombie."""
    try:
        os.kill(process, 0)
    except OSError as error:
        # Another user's process exists, but cannot be signalled.
        return isinstance(error, PermissionError)
    return True


def start_side_process(module: str, arguments: Sequence[str], message: object, pass_fds: Sequence[int] = ()) -> None:
    """Run a module as a process in a session of its own.

    Args:
        module: The module's full name; it runs as `__main__`.
        arguments: Its command line, which every user of the machine can see.
        message: The message, which the module reads with `side_process_message`; it may have secrets.
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
    # The thread takes the exit status, because a process that ends before its caller would stay as a zombie.
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
    """Set up logging, and from the second task on exclude loaded modules from garbage collections.

    Spark's daemon collects garbage after every task, while Spark commits the batch. The first task loads the modules.
    """
    set_up_logging(log_level, log_format)
    if next(_tasks) == 1:
        freeze_gc()


@functools.cache
def freeze_gc() -> None:
    """Exclude the current objects of the process from all later garbage collections; once in a process.

    A full collection takes 25 to 40 ms for the 70,000 objects of loaded modules. Objects of modules that are loaded
    later are collected as usual.
    """
    gc.freeze()


_MAX_EXIT_SECONDS = 30.0
# Seconds between two checks whether the parent process has died.
_LOOK_SECONDS = 1.0


def leave_on_exit(stop: Callable[[], None]) -> Callable[[], None]:
    """Call `stop` once before this process exits: normally, after SIGTERM, or because its parent process has died.

    Spark's signal arrives while Spark's runner stops the reader, so `stop` may be requested twice at the same time. The
    second request waits until `stop` has returned, so that the process does not exit earlier.

    The signal handler interrupts the main thread at any instruction. In the handler, `stop` could wait forever for a
    lock that the main thread holds, so the handler only wakes up another thread.

    Args:
        stop: Leaves the group and closes connections.

    Returns:
        A function that calls `stop` now, unless `stop` was called already.
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
        # Spark sends the signal twice; the thread wakes up once.
        signal.signal(signal.SIGTERM, lambda *_: os.write(wake, b"."))
    return leave


def _leave_on(woken: int, leave: Callable[[], None], parent: int) -> None:
    while not select.select([woken], [], [], _LOOK_SECONDS)[0] and os.getppid() == parent:
        pass
    # Exit after a time limit, because a process that hangs in `leave` would keep its partitions by its heartbeats.
    latest = threading.Timer(_MAX_EXIT_SECONDS, os._exit, (1,))
    latest.daemon = True
    latest.start()
    try:
        leave()
    finally:
        # Do not call sys.exit, which would report an error to Spark, although the query has ended already.
        os._exit(0)
