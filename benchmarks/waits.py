"""A query's waits for brokers, near and far: a task's first connection, a batch's plan, the driver's commit.

    ./run bench waits [--rounds 30] [--delays 0,10] [--against FOLDER]

Each figure is the median of all rounds in one process, with the quartiles. A delay, in ms, holds each request and each
response, so a round trip takes twice as long. `--against` measures the packages of another checkout too, in turns with
the packages of this one, five runs of each. Only kafkagroup's work in Spark's processes is measured, without Spark.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa

TOPIC, PARTITIONS = "waits", 8
ROOT = Path(__file__).parents[1]
_TURNS = 5


def main() -> None:
    """Measure and print."""
    from benchmarks._command import begin, parser_of
    from kafkagroup.embedded import EmbeddedKafka
    from kafkagroup.embedded.tcp_proxy import TcpProxy

    parser = parser_of(__doc__, rounds=30)
    parser.add_argument("--delays", default="0,10")
    parser.add_argument("--against", type=Path)
    given = begin(parser)
    trees = {"these": ROOT, **({} if given.against is None else {"others": given.against.resolve()})}
    with TcpProxy() as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        kafka.create_topic(TOPIC, PARTITIONS)
        for delay in map(float, given.delays.split(",")):
            found: dict[str, list[dict[str, list[float]]]] = {name: [] for name in trees}
            for _ in range(1 if given.against is None else _TURNS):
                for name, tree in trees.items():
                    proxy.delay = delay / 1000
                    found[name].append(_run(tree, f"127.0.0.1:{proxy.port}", given.rounds))
                    proxy.delay = 0.0
            for name, runs in found.items():
                for what in runs[0]:
                    low, middle, high = quantiles([ms for run in runs for ms in run[what]], n=4)
                    each = ", ".join(f"{median(run[what]):.1f}" for run in runs)
                    print(f"{delay:g} ms  {name:7}{what:9}{middle:7.1f} ms ({low:.1f} to {high:.1f}); runs: {each}")


def _run(tree: Path, servers: str, rounds: int) -> dict[str, list[float]]:
    """Measure the packages of a checkout in a process of their own."""
    command = [sys.executable, __file__, "measure", servers, str(rounds)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(servers: str, rounds: int) -> dict[str, list[float]]:
    """Return the times of each round, in ms."""
    from kafka_source.client_config import Settings
    from kafka_source.kafka_client import Deadline, KafkaClient
    from kafka_source.model.stream_offset import StreamOffset
    from kafka_source.options import Where
    from kafka_source.schema import source_schema
    from kafka_source.source.batch import BatchReader
    from kafka_source.source.micro_batches import MicroBatches
    from kafka_source.source.read_task import Query
    from kafkagroup import arrow

    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    schema = source_schema(headers=False)

    def connect(number: int) -> None:
        settings = Settings({"bootstrap.servers": servers, "client.id": f"connect-{number}"})
        with closing(KafkaClient(settings)) as client:
            seen = client.run(client.metadata([TOPIC], Deadline(30)))
            leader = seen.broker(seen.topics[TOPIC].partitions[0].leader)
            client.open_socket(leader.endpoint).close()

    def plan(number: int) -> None:
        # Use a client without connections, as in the process in which Spark plans.
        BatchReader({**options, "kafka.client.id": f"plan-{number}"}, schema).partitions()

    figures = {"connect": _times(connect, rounds), "plan": _times(plan, rounds), "commit": []}
    group = {"kafka.group.id": f"waits-{time.time_ns()}", "group.members": "1"}
    with closing(MicroBatches(Query.of({**options, **group}, schema, Where.STREAM))) as stream:
        at = StreamOffset()
        for _ in range(rounds):
            arrow.write(TOPIC, pa.table({"value": [b"x"]}), {"bootstrap.servers": servers})
            end = stream.next(at, limited=True)
            stream.tasks(at, end)
            figures["commit"] += _times(lambda _, end=end: stream.commit(end, has_looked=True), 1)  # type: ignore[misc]
            at = end
    return figures


def _times(work: Callable[[int], object], rounds: int) -> list[float]:
    found = []
    for number in range(rounds):
        began = time.perf_counter()
        work(number)
        found.append((time.perf_counter() - began) * 1000)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        # Remove this file's folder from the path, because modules in it have the names of packages.
        del sys.path[0]
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
