"""The stub of the native engine says what the built module has: mypy's stubtest compares them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native import kernel

kernel()

NATIVE = Path(__file__).parents[3] / "native"
STUB = "kafkagroup_native.pyi"
# maturin puts the extension module into a package of the same name, which exports all of it and has the stub.
ALLOWED = r"kafkagroup_native\.kafkagroup_native"


def stubtest(stubs: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """Compares the stub in the folder `stubs`, not the installed copy, with the module that is installed."""
    allowlist = work / "allowlist"
    allowlist.write_text(ALLOWED)
    return subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "kafkagroup_native", "--concise", "--allowlist", str(allowlist)],
        cwd=work,
        env={**os.environ, "MYPYPATH": str(stubs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_stub_is_true(tmp_path):
    done = stubtest(NATIVE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


LIES = {
    "def append(self, record_set: RecordSet)": "def append(self, records: RecordSet)",
    "sticky: int = 0,": "sticky: int = 1,",
    "class UnreadableRecord(RecordsError)": "class Unreadable(RecordsError)",
    "    def num_bytes(self)": "    def size_in_bytes(self)",
}


def test_a_stub_that_is_not_true_is_found(tmp_path):
    stub = (NATIVE / STUB).read_text()
    for truth, lie in LIES.items():
        assert truth in stub
        stub = stub.replace(truth, lie)
    (tmp_path / STUB).write_text(stub)
    done = stubtest(tmp_path, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("BatchBuilder.append", "BatchEncoder.__new__", "Unreadable ", "UnreadableRecord", "Batch.num_bytes"):
        assert name in done.stdout
