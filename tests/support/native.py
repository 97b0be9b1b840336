"""The native engine for tests: its module, or the reason why the tests that are about it are skipped."""

import os
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import pytest

#: `./run` sets it where it has installed the native engine. A test run then fails, and skips nothing, if the engine
#: cannot be used: a broken engine must not look like a machine without one.
EXPECTED = "KAFKAGROUP_TEST_NATIVE"


def reason_to_skip() -> str | None:
    """Why tests of the native engine are skipped here; None if they run."""
    from kafka_source.engine_selection import why_not_native

    reason = why_not_native()
    if reason is not None and os.environ.get(EXPECTED):
        raise pytest.UsageError(f"{EXPECTED} is set, but {reason}")
    return reason


def kernel() -> Any:
    """The native module, for test modules that call it; they are skipped as a whole where it cannot be used."""
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason, allow_module_level=True)
    return import_module("kafkagroup_native")


def skip_without_native(items: list[pytest.Item]) -> None:
    """Where it is missing, skip the tests marked `requires_native` and those with the parameter `engine` = "native"."""
    reason = reason_to_skip()
    if reason is None:
        return
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if item.get_closest_marker("requires_native") or parameters.get("engine") == "native":
            item.add_marker(pytest.mark.skip(reason=reason))


def without_warning(said: str) -> str:
    """What a process has said, without the warning that it has no native engine, where it has none."""
    reason = reason_to_skip()
    return said if reason is None else "".join(line for line in said.splitlines(keepends=True) if reason not in line)


def lets_threads_run(work: Callable[[], object]) -> bool:
    """Whether this thread runs on while another one works, four times many ms: so its calls do not hold the GIL."""
    turns, running, stop = 0, threading.Event(), threading.Event()

    def work_often() -> None:
        running.set()
        for _ in range(4):
            work()
        stop.set()

    thread = threading.Thread(target=work_often)
    thread.start()
    running.wait(60)
    while not stop.is_set():
        turns += 1
    thread.join(60)
    # With the GIL held, this loop would get its turn between the calls only.
    return turns > 1000


@cache
def cargo_works() -> bool:
    """Whether cargo can build: rustup's `cargo` is on the PATH of some machines without any toolchain."""
    try:
        return subprocess.run(["cargo", "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False
