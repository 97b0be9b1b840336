"""Write what the queries of one commit leave behind: checkpoints, and the offsets of the groups that they use.

Run by hand, at the commit whose files are to be kept, from the project's folder:

    python -m tests.kept.generate tests/kept/3904155

Do not run it to repair a test: the files of an old commit can only be written by that commit. The options below are
those of 3904155. At 44d44fa it was run with two changes: the option is `min.records.per.task`, and `failpoint` killed
the process at the name in KAFKAGROUP_FAILPOINT, which that commit does not read any more.

Each case is real Spark queries on an embedded broker, in a process of its own. A case becomes a folder with

    checkpoint/   all of Spark's checkpoint, without the checksum files
    case.json     `cluster`: the broker's id
                  `topics`: id and number of partitions by name
                  `tasks`: what each input partition of the pending batch has read: [topic, partition, start, end]
                  `groups`: every offset with its metadata, by group, topic and partition
                  `transactions`: the sink's open ones, without the prefix of their ids, by partition written to

The names of all topics, groups and transactional ids of a case begin with `kept-{case}`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicCollection
from kafka.admin import KafkaAdminClient

from kafkagroup.embedded import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IN_GROUP = {"kafka.group.id": "{name}-group", "group.members": "2", "minRecordsPerTask": "1"}
TO_SINK = {
    "topic": "{name}-out",
    "transactional": "true",
    "transactional.id.prefix": "{name}-sink",
    # The transactions must be open still when they are looked at.
    "kafka.transaction.timeout.ms": "600000",
}


@dataclass(frozen=True)
class Case:
    """What one folder keeps.

    Attributes:
        options: Of the source, besides `subscribe` and the like.
        records: In each partition, when the query starts first.
        fails: The number of the batch that is planned and fails, so that Spark does not commit it.
        sink: Options of an exactly-once sink; none: rows are only looked at.
        failpoint: Where the sink's driver dies, in a second start of the query with `more` records.
        more: Written to each partition before that start.
        partitions: Of the topics.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    records: int = 20
    fails: int | None = 2
    sink: Mapping[str, str] = field(default_factory=dict)
    failpoint: str = ""
    more: int = 0
    partitions: int = 2


BY_SINK = {**IN_GROUP, "commit": "sink"}
COMMITS_SOURCE = {**TO_SINK, "commit.group": "{name}-group"}
CASES: dict[str, Case] = {
    "alone": Case(),
    "split": Case({"minPartitions": "5", "maxRecordsPerPartition": "3"}),
    "group": Case(IN_GROUP),
    "group-done": Case(IN_GROUP, records=10, fails=None),
    "quota": Case({**IN_GROUP, "quota.records.per.second": "1000", "quota.bytes.per.second": "1000000"}),
    "copies": Case(
        {
            **IN_GROUP,
            "kafka.partition.assignment.strategy": "redundant",
            "redundant.copies": "2",
            "redundant.emit": "all",
        }
    ),
    "sink-done": Case(BY_SINK, records=10, fails=None, sink=COMMITS_SOURCE),
    "sink-prepared": Case(BY_SINK, records=10, fails=None, sink=COMMITS_SOURCE, failpoint="sink-prepared", more=10),
    "sink-decided": Case(BY_SINK, records=10, fails=None, sink=COMMITS_SOURCE, failpoint="sink-decided", more=10),
    # So many tasks that one group cannot hold the decision.
    "sink-wide": Case(
        {"maxRecordsPerPartition": "1", "maxOffsetsPerTrigger": "240"},
        records=0,
        fails=None,
        sink=TO_SINK,
        failpoint="sink-decided",
        more=240,
        partitions=1,
    ),
}


def keep(target: Path) -> None:
    """Write the folders of all cases into `target`."""
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as scratch:
        for name, case in CASES.items():
            folder = target / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            tasks = run(kafka, name, case, Path(scratch) / name)
            copy_text(Path(scratch) / name / "checkpoint", folder / "checkpoint")
            write_json(folder / "case.json", describe(kafka, f"kept-{name}", tasks))
            print(name, "kept", flush=True)


def run(kafka: EmbeddedKafka, name: str, case: Case, scratch: Path) -> list[list[Any]]:
    """Run a case's query once or twice; what the pending batch's input partitions have read."""
    source = kafka.create_topic(f"kept-{name}-in", partitions=case.partitions)
    if case.sink:
        kafka.create_topic(f"kept-{name}-out", partitions=case.partitions)
    scratch.mkdir()
    if case.records:
        fill(kafka, source, case, 0, case.records)
        start(kafka, name, scratch, "")
    if case.failpoint:
        fill(kafka, source, case, case.records, case.more)
        start(kafka, name, scratch, case.failpoint)
    told = scratch / "tasks.json"
    return list(json.loads(told.read_text())) if told.exists() else []


def fill(kafka: EmbeddedKafka, topic: str, case: Case, first: int, count: int) -> None:
    """Write records whose value is their own place, `partition-offset`."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, offset in itertools.product(range(case.partitions), range(first, first + count)):
        producer.produce(topic, f"{partition}-{offset}", partition=partition)
    assert producer.flush(60) == 0


def start(kafka: EmbeddedKafka, name: str, scratch: Path, failpoint: str) -> None:
    """Start the case's query in a process of its own, and wait for its end."""
    # Its Python workers inherit the variable from its JVM.
    environment = {**os.environ, "KAFKAGROUP_FAILPOINT": failpoint}
    command = [sys.executable, "-m", "tests.kept.generate", "query", name, kafka.bootstrap_servers, str(scratch)]
    subprocess.run(command, env=environment, check=True, timeout=600)


def query(name: str, servers: str, scratch: Path) -> None:
    """The case's query, in this process, to the end of what there is or to its failure."""
    from pyspark.errors import StreamingQueryException

    from tests.apps.streaming_app import session

    case = CASES[name]
    common = {"kafka.bootstrap.servers": servers}
    given = {
        "subscribe": f"kept-{name}-in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        **case.options,
        **common,
    }
    spark = session("local[2]")
    frame = spark.readStream.format("kafkagroup").options(**named(given, name)).load()
    if case.sink:
        writer = frame.select("value", "partition").writeStream.format("kafkagroup")
        writer = writer.options(**named({**case.sink, **common}, name))
    else:

        def look(rows: DataFrame, batch: int) -> None:
            if batch == case.fails:
                (scratch / "tasks.json").write_text(json.dumps(tasks_of(rows)))
                raise ZeroDivisionError("the batch that stays pending")

        writer = frame.writeStream.foreachBatch(look)
    running = writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()
    failed = False
    try:
        running.awaitTermination()
    except StreamingQueryException as error:
        failed = True
        print(name, "failed:", str(error).strip().splitlines()[-1], flush=True)
    spark.stop()
    assert failed == (case.fails is not None or bool(os.environ["KAFKAGROUP_FAILPOINT"]))


def named(options: Mapping[str, str], name: str) -> dict[str, str]:
    """Options with the case's name in them."""
    return {key: value.format(name=f"kept-{name}") for key, value in options.items()}


def tasks_of(rows: DataFrame) -> list[list[tuple[str, int, int, int]]]:
    """What each input partition has read."""
    from pyspark.sql.functions import max as last
    from pyspark.sql.functions import min as first
    from pyspark.sql.functions import spark_partition_id

    found = (
        rows.groupBy(spark_partition_id().alias("task"), "topic", "partition")
        .agg(first("offset").alias("start"), (last("offset") + 1).alias("end"))
        .orderBy("task", "topic", "partition")
        .collect()
    )
    return [[tuple(row)[1:] for row in task] for _, task in itertools.groupby(found, lambda row: row["task"])]


def describe(kafka: EmbeddedKafka, prefix: str, tasks: list[list[Any]]) -> dict[str, Any]:
    """What `case.json` holds."""
    admin = kafka.admin()
    names = sorted(name for name in admin.list_topics(timeout=30).topics if name.startswith(f"{prefix}-"))
    topics = {}
    for name, future in admin.describe_topics(TopicCollection(names)).items():
        topic = future.result(30)
        topics[name] = {"id": str(topic.topic_id), "partitions": len(topic.partitions)}
    return {
        "cluster": admin.describe_cluster().result(30).cluster_id,
        "topics": topics,
        "tasks": tasks,
        "groups": groups_of(kafka, prefix),
        "transactions": transactions_of(kafka, f"{prefix}-sink-"),
    }


def groups_of(kafka: EmbeddedKafka, prefix: str) -> dict[str, dict[str, dict[str, tuple[int, str]]]]:
    """Offset and metadata by group, topic and partition."""
    # Not confluent-kafka's admin client: it reads metadata beyond its end.
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        names = [one["group_id"] for one in admin.list_groups() if one["group_id"].startswith(f"{prefix}-")]
        found = admin.list_group_offsets(names) if names else {}
    groups: dict[str, dict[str, dict[str, tuple[int, str]]]] = {}
    for group, offsets in sorted(found.items()):
        for tp, committed in sorted(offsets.items()):
            groups.setdefault(group, {}).setdefault(tp.topic, {})[str(tp.partition)] = committed[:2]
    return groups


def transactions_of(kafka: EmbeddedKafka, prefix: str) -> dict[str, list[str]]:
    """The open transactions whose ids have this prefix, by the partition that they have written to."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        listed = [one for of_node in admin.list_transactions(state_filters=["Ongoing"]).values() for one in of_node]
        names = [one.transactional_id for one in listed if one.transactional_id.startswith(prefix)]
        found = admin.describe_transactions(names) if names else {}
    written: dict[str, list[str]] = {}
    for name, transaction in sorted(found.items()):
        for topic, partition in sorted(transaction.topic_partitions):
            written.setdefault(f"{topic}-{partition}", []).append(name.removeprefix(prefix))
    return written


def copy_text(source: Path, target: Path) -> None:
    """Copy a folder without what is hidden: Spark's checksums."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a file of JSON, each key in a line."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["query", name, servers, scratch]:
            query(name, servers, Path(scratch))
        case [target]:
            keep(Path(target))
        case _:
            sys.exit(__doc__)
