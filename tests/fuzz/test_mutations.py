"""Ten million mutated record sets, and as many Avro and JSON values, through the kernel, checked by a debug build."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.native import cargo_works

CRATE = Path(__file__).parents[2] / "native"
# `fuzz` is a release build with overflow checks and debug assertions.
COMMAND = ["cargo", "test", "--locked", "--profile", "fuzz", "--no-default-features", "--test"]
MUTATIONS = 10_000_000
SECONDS = 1500


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.skipif(
    not cargo_works(), reason="the native engine and its fuzzer are built with cargo, which does not work here"
)
@pytest.mark.parametrize(
    ("test", "tally"),
    [
        ("mutations", r"whole (\d+), partial (\d+), corrupt (\d+), old format (\d+)"),
        ("avro_values", r"good (\d+), bad (\d+)"),
        ("json_values", r"good (\d+), bad (\d+)"),
        ("protobuf_values", r"good (\d+), bad (\d+)"),
    ],
)
def test_millions_of_mutations_neither_crash_nor_hang_nor_give_a_wrong_row(test: str, tally: str) -> None:
    """The mutations are those of a fixed seed; `native/tests/TEST.rs` checks each outcome."""
    done = subprocess.run(
        [*COMMAND, test, "--", "--ignored", "--nocapture"],
        cwd=CRATE,
        env={**os.environ, "MUTATIONS": str(MUTATIONS), "MUTATION_SECONDS": str(SECONDS)},
        capture_output=True,
        text=True,
        timeout=SECONDS + 500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    counts = re.search(rf"(\d+) mutations in .*: {tally}", done.stdout)
    assert counts is not None, done.stdout[-4000:]
    total, *kinds = (int(count) for count in counts.groups())
    # Every way out was taken, many times: the mutations reach what they are meant to reach.
    assert total >= MUTATIONS and min(kinds) > 1000
