"""The draws of `test_pairs.py` through Spark, in one session; with `kill -9` a driver of their own begins them."""

import os
import random
from collections.abc import Sequence
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
from tests.pairs.test_pairs import FIRST_SEED, check, piece_files, play_all, play_piece
from tests.pairs.world import World

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

    draws = {seed: spark_draw(seed) for seed in seeds}
    return play_all(draws, lambda draw: play(kafka, admin, draw, open_, partial(open_elsewhere, folder)), THREADS)


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
def piece_file(tmp_path_factory):
    yield from piece_files(tmp_path_factory, "spark", spark_draw)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("piece", range(LONG_PIECES))
def test_many_draws_through_spark(spark, kafka, piece_file, tmp_path, piece):
    play_piece(piece_file(piece), piece, DRAWS_OF_LONG_PIECE, partial(differences, spark, kafka, tmp_path))
