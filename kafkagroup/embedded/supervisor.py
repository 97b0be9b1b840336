"""The parent process of a node's JVM: signals the JVM, and stops it when the program that uses the broker has ended.

The script needs only the standard library: `python -I supervisor.py LOG REMOVE COMMAND...`. Each byte on standard input
is a signal for the JVM: T (SIGTERM), K (SIGKILL), S (SIGSTOP), C (SIGCONT). The supervisor writes the same
byte to standard output when the signal was sent or, for S, when the JVM has stopped.

If standard input ends, the parent process changes, or the supervisor gets SIGTERM, the program that uses the broker
has ended: the supervisor then stops the JVM and removes the folder REMOVE (empty: no folder).

As the JVM's parent, the supervisor reads the exit status before the process id is reused, so no signal reaches another
process. The supervisor exits with the JVM's code.
"""

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
    """Run `command` until it or the supervisor's parent ends, and append the command's output to the file `log_path`.

    Returns:
        The exit code of `command`; 128 + n if signal n ended it.
    """
    parent = os.getppid()
    # Ctrl-C in a terminal reaches this process too, but the program that uses the broker decides when to stop.
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
        # The timeout lets this loop check the parent. After the parent has ended, a fork of the parent may keep
        # standard input open, so that no end of file comes.
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
    # Before Python 3.13, macOS has no waitid, and the acknowledgement only shows that S was sent.
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            # WNOWAIT leaves the stop reported, because a JVM that is stopped already does not report another one.
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


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
