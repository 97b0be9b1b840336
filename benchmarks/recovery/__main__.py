"""Time from a death to the next committed micro-batch: kafkagroup and the JVM connector, in one run.

    ./run bench recovery [--rounds 3] [--quick] [--only worker broker] [--save FILE]

A standalone cluster of three Spark workers with a core each, three brokers, one topic of three partitions with three
replicas, 300 records a second into Parquet files. Each measurement is a query of its own. A process dies by SIGKILL,
and the time ends with the commit of a later micro-batch, its file in `commits/` of the checkpoint. Only then is the
process started again. A query that fails, or needs longer than 120 s, counts as 120 s.

The brokers notice a dead broker after 4 s (`broker.session.timeout.ms`; Kafka's default is 9 s). Until then its
partitions have no leader, and its group no coordinator. In `broker`, a broker that leads a partition dies; in the last
row, the group's coordinator dies. The active controller never dies. The admin client of kafka-clients 3.9.1, by which
the JVM connector looks up end offsets, may wait for a dead leader until `default.api.timeout.ms` of 60 s has passed
(KAFKA-20673), although the partition has a new leader.

All settings are defaults, except `min.records.per.task=1`, which gives each worker a task, as the JVM connector does.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql.streaming import StreamingQuery

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.recovery.deaths import LONGEST_SECONDS, Death, Roles, Stage
from kafkagroup.embedded import EmbeddedKafka
from testbed.load import Load
from testbed.spark_cluster import SparkCluster

TOPIC, PARTITIONS, RECORDS_PER_SECOND = "steady", 3, 300
# After this number of micro-batches, a query has its Python workers, connections and compiled code.
WARM_UP_BATCHES = 10
# Long enough for a busy machine; not measured.
WARM_UP_SECONDS = 600.0
CONF = {"spark.executor.memory": "512m"}

CASES = NOBODY, WORKER, BROKER = "nobody", "worker", "broker"

_T = TypeVar("_T")
DeathOf = Callable[[Roles], Death]


CONTESTANTS = JVM, NO_GROUP, IN_GROUP = sources.JVM, "native, no group", "native, in a group"


def main() -> None:
    parser = parser_of(__doc__, rounds=3, saves=True)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES)
    given = begin(parser, HEAD)
    rounds = 1 if given.quick else given.rounds
    with stage() as here:
        measured = cases(here)
        if not given.quick:
            # The first queries of a session load and compile Spark's own classes.
            for warm_up in measured[NOBODY].values():
                warm_up()
        figures = [in_turns(Figures(case), measured[case], rounds, 0) for case in given.only]
    save(given, figures)


def cases(here: Stage) -> dict[str, dict[str, Callable[[], float]]]:
    """Return the contestants of each case."""

    def same(death: DeathOf) -> dict[str, Callable[[], float]]:
        return {one: partial(run, here, one, death) for one in CONTESTANTS}

    # The JVM connector has no coordinator.
    coordinator = {f"{IN_GROUP}: its coordinator": partial(run, here, IN_GROUP, here.coordinator)}
    return {NOBODY: same(here.nobody), WORKER: same(here.worker), BROKER: {**same(here.leader), **coordinator}}


@contextmanager
def stage() -> Iterator[Stage]:
    """Run brokers, a Spark cluster with a session, and the load."""
    folder = Path(tempfile.mkdtemp(prefix="kafkagroup-recovery-"))
    try:
        with EmbeddedKafka(nodes=3) as kafka, SparkCluster(folder, PARTITIONS) as workers:
            kafka.create_topic(TOPIC, PARTITIONS, 3)
            spark = sources.session(PARTITIONS, master=workers.master, conf=CONF)
            try:
                here = Stage(kafka, workers, spark)
                here.wait_for_executors()
                with closing(Load(kafka.internal_bootstrap_servers, TOPIC, RECORDS_PER_SECOND)):
                    yield here
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(here: Stage, contestant: str, death_of: DeathOf) -> float:
    """Return the seconds from a death to the commit of a micro-batch that began after the death."""
    roles = here.roles()
    death = death_of(roles)
    folder = Path(tempfile.mkdtemp(prefix="kafkagroup-checkpoint-"))
    try:
        query = start(here, contestant, roles.group, folder)
        try:
            return measure(query, folder / "checkpoint", death)
        finally:
            query.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(here: Stage, contestant: str, group: str, folder: Path) -> StreamingQuery:
    """Start the query of a contestant with its files in a folder."""
    servers, options = here.kafka.bootstrap_servers, {"startingOffsets": "latest"}
    if contestant != JVM:
        options["min.records.per.task"] = "1"
    if contestant == IN_GROUP:
        options |= {"kafka.group.id": group, "group.members": str(PARTITIONS)}
    source = sources.JVM if contestant == JVM else sources.NATIVE
    frame = sources.frame(here.spark, source, servers, TOPIC, stream=True, settings=options)
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def measure(query: StreamingQuery, checkpoint: Path, death: Death) -> float:
    """Wait until a query is warm, kill a process, and return the time to the commit; then start the process again."""
    if not wait(query, lambda: len(committed(checkpoint)) >= WARM_UP_BATCHES or None, WARM_UP_SECONDS):
        raise RuntimeError(f"no {WARM_UP_BATCHES} micro-batches before the kill: nothing can be measured")
    killed = time.time()
    death.kill()
    try:
        done = wait(query, partial(first_commit_after, checkpoint, killed))
    finally:
        death.mend()
    return LONGEST_SECONDS if done is None else done - killed


def wait(query: StreamingQuery, look: Callable[[], _T | None], seconds: float = LONGEST_SECONDS) -> _T | None:
    """Return the result of `look`; None if the query fails or the time limit passes before there is a result."""
    deadline = time.monotonic() + seconds
    while query.isActive and time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.02)
    if not query.isActive:
        print(f"the query failed: {str(query.exception())[:300]}", flush=True)
    return None


def committed(checkpoint: Path) -> list[int]:
    """Return the ids of the committed micro-batches, in order."""
    return sorted(int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal())


def began_at(checkpoint: Path, batch: int) -> float:
    """Return when Spark planned a micro-batch, in seconds since 1970; this is just after its end offsets are known."""
    _, metadata, *_ = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return float(json.loads(metadata)["batchTimestampMs"]) / 1000


def first_commit_after(checkpoint: Path, moment: float) -> float | None:
    """Return when the first micro-batch that began after a moment was committed; None: not yet.

    A micro-batch that was running at that moment does not count, because it may have been almost done.
    """
    found = None
    for batch in reversed(committed(checkpoint)):
        if began_at(checkpoint, batch) <= moment:
            break
        found = (checkpoint / "commits" / str(batch)).stat().st_mtime
    return found


if __name__ == "__main__":
    main()
