"""Draws of queries whose features meet, with a real broker, compared with a model (see `model.py`).

A draw is a function of its seed. A failure prints the seed, the draw as a story, and what differs. To play one draw:

    PAIRS_SEED=34012 ./run test tests/pairs -k one_draw

The long test plays 5,000 draws in pieces. `PAIRS_FOLDER` keeps which pieces are done: run it again to continue.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.pairs.draws import Draw, draw_of
from tests.pairs.play import play

FIRST_SEED = 34_000
DRAWS = 24
# A rewind to inside of a batch whose tasks have committed; the second one beside another query.
REWOUND = (34_935, 34_943)
LONG_PIECES, DRAWS_OF_LONG_PIECE = 50, 100
THREADS = 6

pytestmark = pytest.mark.requires_native


def play_all(draws: Mapping[int, Draw], play_one: Callable[[Draw], str | None], threads: int) -> list[str]:
    """Play draws by their seeds; return a text for each that differs from the model."""

    def one(seed: int) -> str | None:
        difference = play_one(draws[seed])
        return None if difference is None else f"seed {seed}: {draws[seed].story()}\n    {difference}"

    with ThreadPoolExecutor(threads) as pool:
        return [text for text in pool.map(one, draws) if text is not None]


def differences(kafka: EmbeddedKafka, seeds: Iterable[int]) -> list[str]:
    admin = kafka.admin()
    return play_all({seed: draw_of(seed) for seed in seeds}, lambda draw: play(kafka, admin, draw), THREADS)


def check(different: list[str]) -> None:
    if different:
        # The brokers' logs come after it.
        pytest.fail("\n".join(different), pytrace=False)


def test_what_is_read_is_what_the_model_says(kafka):
    check(differences(kafka, [*range(FIRST_SEED, FIRST_SEED + DRAWS), *REWOUND]))


@pytest.mark.skipif("PAIRS_SEED" not in os.environ, reason="it plays the draw of PAIRS_SEED")
def test_one_draw(kafka):
    check(differences(kafka, [int(os.environ["PAIRS_SEED"])]))


def piece_files(
    tmp_path_factory: pytest.TempPathFactory, name: str, draw_of: Callable[[int], Draw]
) -> Iterator[Callable[[int], Path]]:
    """The file of each piece of a long run; at the end the run is summed up."""
    made = Path(os.environ.get("PAIRS_FOLDER") or tmp_path_factory.mktemp("pairs"))
    made.mkdir(parents=True, exist_ok=True)
    yield lambda piece: made / f"{name}-{piece:02}.json"
    done = [json.loads(path.read_text()) for path in sorted(made.glob(f"{name}-*.json"))]
    pairs = {pair for one in done for seed in one["seeds"] for pair in draw_of(seed).pairs()}
    different = [text for one in done for text in one["different"]]
    print(f"\n{sum(len(one['seeds']) for one in done)} draws, {len(pairs)} pairs, {len(different)} unexplained")
    print("\n".join(different))


def play_piece(state: Path, piece: int, count: int, differences: Callable[[range], list[str]]) -> None:
    """Play a piece of so many draws, unless its file says that it is done."""
    if state.exists() and not json.loads(state.read_text())["different"]:
        pytest.skip("this piece is done")
    first = FIRST_SEED + 1_000 + piece * count
    seeds = range(first, first + count)
    different = differences(seeds)
    state.write_text(json.dumps({"seeds": list(seeds), "different": different}))
    check(different)


@pytest.fixture(scope="module")
def piece_file(tmp_path_factory):
    yield from piece_files(tmp_path_factory, "piece", draw_of)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("piece", range(LONG_PIECES))
def test_many_draws(kafka, piece_file, piece):
    play_piece(piece_file(piece), piece, DRAWS_OF_LONG_PIECE, partial(differences, kafka))
