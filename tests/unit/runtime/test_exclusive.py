"""A block that one process of a user at a time is in."""

import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from kafka_source.runtime.shared_files import exclusive, private_directory

NAME = f"test-{os.getpid()}"


def test_one_at_a_time_is_in_the_block_and_no_file_is_left() -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    def enter(_: int) -> None:
        nonlocal inside, most
        with exclusive(NAME):
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(200)))
    assert most == 1
    with private_directory() as directory:
        assert not (directory / f"{NAME}.lock").exists()


def test_a_process_that_dies_lets_others_in() -> None:
    program = (
        "import os, sys\n"
        "from kafka_source.runtime.shared_files import exclusive\n"
        f"with exclusive({NAME!r}):\n"
        "    print('inside', flush=True)\n"
        "    sys.stdin.read(1)\n"
        "    os._exit(1)\n"
    )
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"inside\n"
        with ThreadPoolExecutor(1) as pool:
            entered = pool.submit(enter_once)
            assert not entered.done()
            process.stdin.close()
            entered.result(30)


def enter_once() -> None:
    with exclusive(NAME):
        pass
