"""Draws of queries whose features meet, with a real broker, compared with a model (see `model.py`).

A draw is a function of its seed. A failure prints the seed, the draw as a story, and what differs. To play one draw:

    PAIRS_SEED=34012 ./run test tests/pairs -k one_draw

The long test plays 5,000 draws in pieces. `PAIRS_FOLDER` keeps which pieces are done: run it again to continue.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.pairs.draws import draw_of
from tests.pairs.play import play

FIRST_SEED = 34_000
DRAWS = 24
# A rewind to inside of a batch whose tasks have committed; the second one beside another query.
REWOUND = (34_935, 34_943)
LONG_PIECES, DRAWS_OF_LONG_PIECE = 50, 100
THREADS = 6

pytestmark = pytest.mark.requires_native


def differences(kafka: EmbeddedKafka, seeds: Iterable[int]) -> list[str]:
    """Play draws; return a text for each that differs from the model."""
    admin = kafka.admin()

    def one(seed: int) -> str | None:
        draw = draw_of(seed)
        difference = play(kafka, admin, draw)
        return None if difference is None else f"seed {seed}: {draw.story()}\n    {difference}"

    with ThreadPoolExecutor(THREADS) as pool:
        return [text for text in pool.map(one, seeds) if text is not None]


def check(different: list[str]) -> None:
    if different:
        # The brokers' logs come after it.
        pytest.fail("\n".join(different), pytrace=False)


def test_what_is_read_is_what_the_model_says(kafka):
    check(differences(kafka, [*range(FIRST_SEED, FIRST_SEED + DRAWS), *REWOUND]))


@pytest.mark.skipif("PAIRS_SEED" not in os.environ, reason="it plays the draw of PAIRS_SEED")
def test_one_draw(kafka):
    different = differences(kafka, [int(os.environ["PAIRS_SEED"])])
    check(different)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """What is done of the long run; at the end it is summed up."""
    made = Path(os.environ.get("PAIRS_FOLDER") or tmp_path_factory.mktemp("pairs"))
    made.mkdir(parents=True, exist_ok=True)
    yield made
    done = [json.loads(path.read_text()) for path in sorted(made.glob("piece-*.json"))]
    pairs = {pair for one in done for seed in one["seeds"] for pair in draw_of(seed).pairs()}
    different = [text for one in done for text in one["different"]]
    print(f"\n{sum(len(one['seeds']) for one in done)} draws, {len(pairs)} pairs, {len(different)} unexplained")
    print("\n".join(different))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("piece", range(LONG_PIECES))
def test_many_draws(kafka, folder, piece):
    state = folder / f"piece-{piece:02}.json"
    if state.exists() and not json.loads(state.read_text())["different"]:
        pytest.skip("this piece is done")
    first = FIRST_SEED + 1_000 + piece * DRAWS_OF_LONG_PIECE
    seeds = range(first, first + DRAWS_OF_LONG_PIECE)
    different = differences(kafka, seeds)
    state.write_text(json.dumps({"seeds": list(seeds), "different": different}))
    check(different)
