"""Time of the assignors and of Java's assignors, with the same groups on the same machine, in turns in one run.

    ./run bench assignors [--repeat 5] [--only TEXT]

Each group has three rounds. "fresh": a new group. "reported": all members but the first report their assignments. "one
left": the first member has left. Only assign() is measured; for `sticky` this includes decoding the members' user data,
in Java too. "as objects" adds the creation of an object per partition, which Java's time includes.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

from assignors import Assignment, ClusterMetadata, Subscription, load
from benchmarks._command import begin, parser_of
from kafkagroup.embedded.jars import KAFKA_VERSION
from kafkagroup.embedded.java import find_java
from kafkagroup.embedded.tools import class_path

ROUNDS = ("fresh", "reported", "one left")
BAR = 2.0
"""The highest allowed ratio of the assignor's time to Java's, in the cases with `bar`."""

SHAPES: list[dict[str, Any]] = [
    {"assignor": "sticky", "topics": 500, "partitions": 2000, "members": 2000, "bar": True},
    {"assignor": "cooperative-sticky", "topics": 500, "partitions": 2000, "members": 2000, "bar": True},
    {"assignor": "sticky", "topics": 500, "partitions": 2000, "members": 2000, "subscription": "last_one_topic",
     "bar": True},
    {"assignor": "cooperative-sticky", "topics": 500, "partitions": 2000, "members": 2000,
     "subscription": "last_one_topic", "bar": True},
    {"assignor": "sticky", "topics": 100, "partitions": 200, "members": 500, "subscription": "split4", "bar": True},
    {"assignor": "cooperative-sticky", "topics": 100, "partitions": 200, "members": 500, "subscription": "split4",
     "bar": True},
    {"assignor": "sticky", "topics": 50, "partitions": 2000, "members": 2000, "racks": 3, "replicas": 2},
    {"assignor": "sticky", "topics": 50, "partitions": 2000, "members": 2000, "subscription": "last_one_topic",
     "racks": 3, "replicas": 2},
    {"assignor": "range", "topics": 500, "partitions": 4, "members": 2000},
    {"assignor": "roundrobin", "topics": 500, "partitions": 4, "members": 2000},
    {"assignor": "sticky", "topics": 500, "partitions": 4, "members": 2000},
    {"assignor": "sticky", "topics": 10, "partitions": 1000, "members": 100},
]  # fmt: skip


def label(shape: Mapping[str, Any]) -> str:
    size = f"{shape['topics']} x {shape['partitions']} x {shape['members']}"
    kind = {"last_one_topic": "mixed", "split4": "split"}.get(shape.get("subscription", ""), "uniform")
    return f"{shape['assignor']}, {kind}{', racks' if shape.get('racks') else ''}, {size}"


def cluster_of(shape: Mapping[str, Any]) -> ClusterMetadata:
    names = [f"t{place:04d}" for place in range(shape["topics"])]
    counts = dict.fromkeys(names, shape["partitions"])
    if not shape.get("racks"):
        return ClusterMetadata(counts)
    racks = {
        name: [
            [f"r{(place + number + copy) % shape['racks']}" for copy in range(shape["replicas"])]
            for number in range(shape["partitions"])
        ]
        for place, name in enumerate(names)
    }
    return ClusterMetadata(counts, racks)


def wanted(shape: Mapping[str, Any], names: Sequence[str], member: int) -> Sequence[str]:
    kind = shape.get("subscription")
    if kind == "last_one_topic" and member == shape["members"] - 1:
        return names[:1]
    if kind == "split4":
        return names[: len(names) // 2] if member % 4 == 0 else names[len(names) // 2 :]
    return names


def group_of(shape: Mapping[str, Any], number: int, last: Mapping[str, Assignment]) -> dict[str, Subscription]:
    """Return the subscriptions of a round, with the user data of the members' assignors."""
    names = tuple(f"t{place:04d}" for place in range(shape["topics"]))
    group = {}
    for place in range(1 if number == 2 else 0, shape["members"]):
        member, topics, own = f"c{place:05d}", wanted(shape, names, place), load(shape["assignor"])
        had = None if number == 0 or (number == 1 and place == 0) else last[member]
        if had is not None:
            own.on_assignment(had, number)
        cooperative = had is not None and shape["assignor"].startswith("coop")
        group[member] = Subscription(
            topics,
            own.subscription_user_data(topics),
            had.partitions if had is not None and cooperative else (),
            number if had is not None else -1,
            f"r{place % shape['racks']}" if shape.get("racks") else None,
        )
    return group


def ours(shape: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the seconds of each round, without and with the creation of objects."""
    cluster, last = cluster_of(shape), dict[str, Assignment]()
    plain, objects = [], []
    for number in range(len(ROUNDS)):
        group, leader = group_of(shape, number, last), load(shape["assignor"])
        gc.collect()
        start = time.perf_counter()
        last = dict(leader.assign(cluster, group))
        plain.append(time.perf_counter() - start)
        made = [list(given.partitions) for given in last.values()]
        objects.append(time.perf_counter() - start)
        assert sum(map(len, made)) <= shape["topics"] * shape["partitions"]
        del made
    return plain, objects


class Java(AbstractContextManager["Java"]):
    """One JVM for the whole run. It warms up during the run, which favours Java."""

    def __init__(self) -> None:
        source = str(Path(__file__).with_name("JavaBench.java"))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        command = [str(find_java()), "-Xmx4g", quiet, "-cp", class_path(), source]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, shape: Mapping[str, Any]) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(shape) + "\n")
        self._process.stdin.flush()
        answer: list[float] = json.loads(self._process.stdout.readline())
        return answer

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def show(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.3f} ({min(seconds):.3f}-{max(seconds):.3f})"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="only the cases whose label contains this text")
    chosen = begin(parser)
    java = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=False).stderr
    print(f"{java.splitlines()[0]}; kafka-clients {KAFKA_VERSION}")
    print(f"seconds, median of {chosen.repeat} (min-max)\n")
    print("| case | round | ours | as objects | Java | ours / Java |")
    print("| --- | --- | --- | --- | --- | --- |")
    over = []
    with Java() as peer:
        for shape in SHAPES:
            if chosen.only not in label(shape):
                continue
            mine, theirs = [], []
            for _ in range(chosen.repeat):
                mine.append(ours(shape))
                theirs.append(peer.run(shape))
            for number, name in enumerate(ROUNDS):
                plain = [seconds[number] for seconds, _ in mine]
                objects = [seconds[number] for _, seconds in mine]
                reference = [seconds[number] for seconds in theirs]
                ratio = median(plain) / median(reference)
                print(
                    f"| {label(shape)} | {name} | {show(plain)} | {median(objects):.3f} | {show(reference)} "
                    f"| {ratio:.2f} |",
                    flush=True,
                )
                if shape.get("bar") and (ratio > BAR or max(plain) > 30):
                    over.append(f"{label(shape)}, {name}: {ratio:.2f}")
    print("\nall within the bars" if not over else "\nover the bars: " + "; ".join(over))
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
