"""The process between us and a node's JVM: it obeys its standard input, and ends the JVM when that closes.

Run as a script by the standard library alone: `python -I supervisor.py LOG REMOVE COMMAND...`. Each byte read is a
signal for the JVM: T (SIGTERM), K (SIGKILL), S (SIGSTOP), C (SIGCONT). End of file, another parent, or a SIGTERM for us
means that whoever started us is gone (also by `kill -9`): the JVM is ended, and REMOVE (a folder, or an empty string)
is removed. Being the JVM's parent, it can never signal another process that got the same number. Exits as the JVM did.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading

_SIGNALS = {b"T": signal.SIGTERM, b"K": signal.SIGKILL, b"S": signal.SIGSTOP, b"C": signal.SIGCONT}

#: Seconds that an abandoned node with data to keep is given for a clean stop.
_GRACE = 15.0


def supervise(log_path: str, remove: str, command: list[str]) -> int:
    """Runs `command` with its output appended to `log_path` until it ends or we are abandoned."""
    parent = os.getppid()
    # A terminal's Ctrl-C is for the program that uses the broker; that one stops us.
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
        # The timeout is for a fork of the parent that still holds our input open when the parent is gone.
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
    code = child.wait()
    return 128 - code if code < 0 else code


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
