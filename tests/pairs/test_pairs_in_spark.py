"""The draws of `test_pairs.py` through Spark, in one session; with `kill -9` a driver of their own begins them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafkagroup
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.streaming_app import session
from tests.pairs.draws import Draw, draw_of
from tests.pairs.model import refused
from tests.pairs.play import play
from tests.pairs.queries import Names, Note, Running
from tests.pairs.spark_queries import SparkBatches, SparkStream
from tests.pairs.test_pairs import check
from tests.pairs.world import World

FIRST_SEED = 34_000
# Its event is `kill`, in the middle of a stream's batch.
KILLED = 35_190
DRAWS, THREADS = 2, 2
LONG_PIECES, DRAWS_OF_LONG_PIECE = 15, 20

pytestmark = pytest.mark.requires_native


def spark_draw(seed: int) -> Draw:
    """The draw of a seed, of those that can be played through Spark."""
    rng = random.Random(f"spark {seed}")
    while True:
        draw = draw_of(rng.randrange(1_000_000_000))
        not_played = (
            # Without Spark the checkpoint and the sink's topic are changed in place.
            (draw.event == "beyond the end" and draw.membership == "none")
            or (draw.event == "checkpoint put back" and draw.commit == "sink")
        )
        if not_played or refused(draw):
            continue
        if draw.is_stream and draw.commit == "sink":
            # Nothing comes between its source and its sink.
            is_idle = draw.kind == "available-now" and draw.event != "kill"
            return replace(draw, moment="idle" if is_idle else "durable")
        if draw.kind == "stream" and draw.moment == "idle":
            # A stream that runs reads what comes.
            return replace(draw, moment="written")
        return replace(draw, moment="read") if draw.is_stream and draw.moment == "planned" else draw


def open_elsewhere(folder: Path, draw: Draw, names: Names, note: Note) -> Running:
    """A query in a process that has no session yet."""
    spark = session("local[2]")
    kafkagroup.register(spark)
    if not draw.is_stream:
        return SparkBatches(spark, draw, names, note=note)
    return SparkStream(spark, folder, draw, names, note=note)


def differences(spark: SparkSession, kafka: EmbeddedKafka, folder: Path, seeds: Sequence[int]) -> list[str]:
    kafkagroup.register(spark)
    admin = kafka.admin()

    def open_(world: World, draw: Draw, query: str) -> Running:
        if not draw.is_stream:
            return SparkBatches(spark, draw, world.names, query)
        return SparkStream(spark, folder, draw, world.names, query)

    def one(seed: int) -> str | None:
        draw = spark_draw(seed)
        difference = play(kafka, admin, draw, open_, partial(open_elsewhere, folder))
        return None if difference is None else f"seed {seed}: {draw.story()}\n    {difference}"

    with ThreadPoolExecutor(THREADS) as pool:
        return [text for text in pool.map(one, seeds) if text is not None]


def test_through_spark_is_read_what_the_model_says(spark, kafka, tmp_path):
    check(differences(spark, kafka, tmp_path, range(FIRST_SEED, FIRST_SEED + DRAWS)))


@pytest.mark.long
def test_a_driver_that_is_killed_leaves_what_the_model_says(spark, kafka, tmp_path):
    check(differences(spark, kafka, tmp_path, [KILLED]))


@pytest.mark.skipif("PAIRS_SPARK_SEEDS" not in os.environ, reason="it plays the draws of PAIRS_SPARK_SEEDS")
@pytest.mark.timeout(3600)
def test_some_draws_through_spark(spark, kafka, tmp_path):
    check(differences(spark, kafka, tmp_path, [int(seed) for seed in os.environ["PAIRS_SPARK_SEEDS"].split(",")]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """What is done of the long run; at the end it is summed up."""
    made = Path(os.environ.get("PAIRS_FOLDER") or tmp_path_factory.mktemp("pairs"))
    made.mkdir(parents=True, exist_ok=True)
    yield made
    done = [json.loads(path.read_text()) for path in sorted(made.glob("spark-*.json"))]
    pairs = {pair for one in done for seed in one["seeds"] for pair in spark_draw(seed).pairs()}
    different = [text for one in done for text in one["different"]]
    print(f"\n{sum(len(one['seeds']) for one in done)} draws, {len(pairs)} pairs, {len(different)} unexplained")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("piece", range(LONG_PIECES))
def test_many_draws_through_spark(spark, kafka, folder, tmp_path, piece):
    state = folder / f"spark-{piece:02}.json"
    if state.exists() and not json.loads(state.read_text())["different"]:
        pytest.skip("this piece is done")
    first = FIRST_SEED + 1_000 + piece * DRAWS_OF_LONG_PIECE
    seeds = range(first, first + DRAWS_OF_LONG_PIECE)
    different = differences(spark, kafka, tmp_path, seeds)
    state.write_text(json.dumps({"seeds": list(seeds), "different": different}))
    check(different)
