"""Start a process of this package beside the Spark driver, for work that must outlive the process that starts it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence


def start(module: str, arguments: Sequence[str], message: object, pass_fds: Sequence[int] = ()) -> None:
    """Run a module as a process of a session of its own.

    Args:
        module: The module's full name; it runs as `__main__`.
        arguments: Its command line, which every user of the machine can see.
        message: An object that the module reads from its standard input with `received`. It may contain secrets.
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
    # It may end before the caller does; without somebody who takes its exit status it would stay as a zombie.
    threading.Thread(target=process.wait, name=f"{module}-exit", daemon=True).start()
    assert process.stdin is not None
    with process.stdin:
        pickle.dump(message, process.stdin)


def received() -> object:
    """Return the message that `start` has sent to this process."""
    message: object = pickle.load(sys.stdin.buffer)
    return message
