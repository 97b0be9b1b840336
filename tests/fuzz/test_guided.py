"""Coverage-guided fuzzing of the kernel and of the Python parsers: no crash, no hang, no allocation above the bound.

The inputs that are kept in `corpus` run each time, with changes of them and with some inputs of atheris where it is
installed. The long run makes 100 million inputs; KAFKAGROUP_FUZZ_INPUTS=… another number. docs/design/fuzzing.md says
how the corpus grows. The kernel's inputs run in `cargo test` too.
"""

import importlib.util
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.libfuzzer import CORPUS, KERNEL, Outcome, run_kernel, run_parser
from tests.fuzz.parsers import PARSERS, REQUESTS
from tests.support.native import cargo_works

INPUTS = int(os.environ.get("KAFKAGROUP_FUZZ_INPUTS", 100_000_000))
# By what each does in a second, on a quiet machine: 100,000 inputs of a codec, 700 for all strategies of a group.
SHARES = {
    "codec": 0.3,
    "record_set": 0.2,
    "decision": 0.1,
    "encoder": 0.08,
    "assignment": 0.06,
    "user_data": 0.06,
    "subscription": 0.05,
    "fetch_response": 0.05,
    "produce_response": 0.04,
    "frames": 0.035,
    "response": 0.02,
    "group": 0.005,
}
LONGEST_SECONDS = 7200
SHORT_INPUTS, SHORT_SECONDS = 2_000, 120
CHANGED_INPUTS = 2_000

needs_cargo = pytest.mark.skipif(not cargo_works(), reason="the targets are built with cargo, which does not work here")
needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed: it has wheels for Linux x86-64 only"
)
every_parser = pytest.mark.parametrize("parser", list(PARSERS))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for new inputs, which may be many."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@every_parser
def test_seeds_are_valid_and_kept_inputs_keep_every_promise(parser: str) -> None:
    parse = PARSERS[parser]
    assert any(parse(seed) for seed in parse.seeds)
    kept = [path.read_bytes() for path in sorted((CORPUS / parser).iterdir())]
    assert kept
    for data in kept:
        parse(data)


@every_parser
def test_changed_inputs_keep_every_promise(parser: str) -> None:
    """Without coverage as a guide, but from the inputs that it has found; the same changes in every run."""
    rng = random.Random(parser)
    parse = PARSERS[parser]
    kept = [*parse.seeds, *(path.read_bytes() for path in sorted((CORPUS / parser).iterdir()))]
    for _ in range(CHANGED_INPUTS):
        data = bytearray(rng.choice(kept))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data) + 1)
            # Fewer bytes, more, or others.
            data[at : at + rng.choice((0, 1, 1, 4))] = rng.randbytes(rng.choice((0, 1, 1, 4)))
        try:
            parse(bytes(data))
        except BaseException:
            print(f"{parser} of {data.hex()}")
            raise


def test_every_kind_of_response_that_we_ask_for_is_fuzzed() -> None:
    assert len(REQUESTS) >= 25


# The start of a process, and its instrumentation, takes longer than the run: not every parser.
@needs_atheris
@pytest.mark.parametrize("parser", ["fetch_response", "response", "subscription"])
def test_some_inputs(parser: str, folder: Path) -> None:
    outcome = run_parser(parser, folder, inputs=SHORT_INPUTS, seconds=SHORT_SECONDS)
    assert outcome.inputs > 100


@pytest.mark.long
@pytest.mark.timeout(LONGEST_SECONDS + 1200)
@needs_atheris
@every_parser
def test_millions_of_inputs_for_a_parser(parser: str, folder: Path) -> None:
    check(run_parser(parser, folder, inputs=share_of(parser), seconds=LONGEST_SECONDS), share_of(parser))


@pytest.mark.long
@pytest.mark.timeout(LONGEST_SECONDS + 1200)
@needs_cargo
@pytest.mark.parametrize("target", KERNEL)
def test_millions_of_inputs_for_the_kernel(target: str, folder: Path) -> None:
    check(run_kernel(target, folder, inputs=share_of(target), seconds=LONGEST_SECONDS), share_of(target))


def test_the_shares_are_all_inputs() -> None:
    assert set(SHARES) == {*KERNEL, *PARSERS}
    assert sum(SHARES.values()) == pytest.approx(1)


def share_of(target: str) -> int:
    """Return how many inputs of a long run are for a target."""
    return round(INPUTS * SHARES[target])


def check(outcome: Outcome, inputs: int) -> None:
    print(outcome)
    assert outcome.inputs >= inputs, "stopped by the time"
