"""The parent process of a node's JVM: it sends the JVM signals, and stops it when the process that started both ends.

A script that needs only the standard library: `python -I supervisor.py LOG REMOVE COMMAND...`. Each byte on its
standard input is a signal for the JVM: T (SIGTERM), K (SIGKILL), S (SIGSTOP), C (SIGCONT). The same byte on its
standard output acknowledges that the signal was sent, and that the JVM has stopped if it was S. End of file, a change
of the parent process, or a SIGTERM to the supervisor mean that the process that started it has ended, possibly by
SIGKILL: then the supervisor stops the JVM and removes the folder REMOVE (none if it is empty). The supervisor is the
JVM's parent, so the JVM's process id cannot be reused before the supervisor has read its exit status, and no signal can
reach another process. Its exit code is the JVM's.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading

_SIGNALS = {b"T": signal.SIGTERM, b"K": signal.SIGKILL, b"S": signal.SIGSTOP, b"C": signal.SIGCONT}

#: Seconds for a clean stop of a node that keeps its data, after the process that started it has ended.
_GRACE = 15.0


def supervise(log_path: str, remove: str, command: list[str]) -> int:
    """Run `command`, with its output appended to `log_path`, until it or the supervisor's parent ends.

    Returns:
        The exit code of `command`; 128 + n if signal n ended it.
    """
    parent = os.getppid()
    # Ctrl-C in a terminal also reaches this process. It is meant for the program that uses the broker, which then
    # decides whether to stop the node.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(log_path, "ab", buffering=0) as log:  # noqa: PTH123
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    wake_read, wake_write = os.pipe()

    def wait_for_end() -> None:
        child.wait()
        os.write(wake_write, b"E")

    signal.signal(signal.SIGTERM, lambda *_: os.write(wake_write, b"A"))
    threading.Thread(target=wait_for_end, daemon=True).start()
    while True:
        # The timeout is needed to notice a changed parent: a fork of the parent may keep our standard input open after
        # the parent has ended, and then there is no end of file.
        readable, _, _ = select.select([0, wake_read], [], [], 2.0)
        event = os.read(wake_read, 1) if wake_read in readable else b""
        if event == b"E":
            break
        order = os.read(0, 1) if 0 in readable else b"?"
        if not order or event == b"A" or os.getppid() != parent:
            _abandoned(child, remove)
            break
        if order in _SIGNALS:
            child.send_signal(_SIGNALS[order])
            if order == b"S":
                _wait_until_stopped(child)
            with contextlib.suppress(BrokenPipeError):
                os.write(1, order)
    code = child.wait()
    return 128 - code if code < 0 else code


def _wait_until_stopped(child: subprocess.Popen[bytes]) -> None:
    # Python has had waitid on macOS since 3.13 only; there, the acknowledgement only says that S was sent.
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)


def _abandoned(child: subprocess.Popen[bytes], remove: str) -> None:
    if not remove:
        child.send_signal(signal.SIGCONT)
        child.terminate()
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            pass
    child.kill()
    child.wait()
    if remove:
        shutil.rmtree(remove, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1], sys.argv[2], sys.argv[3:]))
