"""Two Spark applications and a Java application share the work on two topics, customer by customer.

./run python -m examples.three_applications [SERVERS]

Orders and payments are keyed by customer, and both topics have the same number of partitions, so a customer's records
are in partitions with the same number. The group assigns the same partition numbers of both topics to one member. So
one application reads all records of a customer, and can join or sum both topics alone.

The strategy `copartition` assigns partitions in this way, and refuses topics with different numbers of partitions.
Java's consumers do not have `copartition`. Java's `range` gives the same result if the numbers of partitions are equal
and all members subscribe to both topics. So the Spark applications offer `copartition,range`: the group uses `range`
with the Java application, and `copartition` without it.

If a partition moves, its next owner continues at the committed offset. Keep sums in a store by customer, not in the
application.
"""

import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from examples.setting import ORDERS, PARTITIONS, kafka, make_topic, produce, spark, until
from kafkagroup import Settings
from kafkagroup.admin import Groups
from kafkagroup.embedded import java_command

PAYMENTS = "payments"
GROUP = "accounts"
COUNTED = "customer string, orders int, payments int"
COUNTED_ARROW = pa.schema([("customer", pa.string()), ("orders", pa.int32()), ("payments", pa.int32())])


def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count orders and payments of each customer. One task reads both topics of a customer, so no shuffle is needed."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {ORDERS: 0, PAYMENTS: 0})
    for batch in batches:
        for topic, customer in zip(batch["topic"].to_pylist(), batch["key"].to_pylist(), strict=True):
            found[customer][topic] += 1
    rows = [{"customer": one, "orders": of[ORDERS], "payments": of[PAYMENTS]} for one, of in found.items()]
    yield from pa.Table.from_pylist(rows, COUNTED_ARROW).to_batches()


def spark_application(name: str, servers: str, checkpoint: str) -> None:
    """Run one of the Spark applications until standard input ends, and print the counts of each micro-batch."""

    def tell(counted: DataFrame, _: int) -> None:
        for row in counted.collect():
            print(row.customer, row.orders, row.payments, sep="\t", flush=True)

    with spark(name) as session:
        query = (
            session.readStream.format("kafkagroup")
            .schema("topic string, key string")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", f"{ORDERS},{PAYMENTS}")
            .option("kafka.group.id", GROUP)
            .option("kafka.client.id", name)
            # One member, like the Java application. The default is one member per partition, at most 8.
            .option("group.members", 1)
            .option("kafka.partition.assignment.strategy", "copartition,range")
            .option("kafka.heartbeat.interval.ms", 500)
            .option("group.membership", "true")
            .option("startingOffsets", "earliest")
            .load()
            .mapInArrow(count, COUNTED)
            .writeStream.foreachBatch(tell)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        sys.stdin.read()
        query.stop()


class Application:
    """One of the three applications, as a process."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.counts: dict[str, tuple[int, int]] = {}
        self._errors = log.open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            customer, orders, payments = line.rstrip("\n").split("\t")
            before = self.counts.get(customer, (0, 0))
            self.counts[customer] = before[0] + int(orders), before[1] + int(payments)

    def stop(self) -> None:
        """Ask the application to end, and wait until it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.write("stop\n")
            self._process.stdin.close()
        self._process.wait(60)
        self._reading.join()
        self._errors.close()


def produce_payments(servers: str, customers: int) -> None:
    """Write a payment of each customer, with the client that also writes the orders.

    Clients choose the partition of a key by different hashes: librdkafka by CRC32, Java by murmur2. Equal keys are in
    partitions with the same number only if both topics are written with the same hash.
    """
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for number in range(customers):
        producer.produce(PAYMENTS, key=f"customer-{number}", value="42.00")
    producer.flush(30)


def main(servers: str | None = None) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(kafka(servers))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_topic(running, PAYMENTS)
        java = java_command(str(Path(__file__).with_name("Accounts.java")), running, GROUP, f"{ORDERS},{PAYMENTS}")
        commands = {"java": java}
        for name in ("spark-a", "spark-b"):
            role = ["--application", name, running, str(folder / name)]
            commands[name] = [sys.executable, "-m", "examples.three_applications", *role]
        applications = []
        for name, command in commands.items():
            applications.append(Application(name, command, folder / f"{name}.log"))
            stack.callback(applications[-1].stop)

        groups = Groups(Settings({"bootstrap.servers": running}))
        until(lambda: group_is_complete(groups), seconds=180)
        group = groups.describe(GROUP)
        print(f"group {GROUP} agrees on {group.assignor}:")
        for member in group.members:
            print(f"  {member.client_id}: {', '.join(f'{tp.topic}-{tp.partition}' for tp in member.partitions)}")

        produce(running, 1000)
        produce_payments(running, 200)
        until(
            lambda: sum(orders + payments for one in applications for orders, payments in one.counts.values()) >= 1200
        )
        customers = {name for one in applications for name in one.counts}
        at_one = [name for name in customers if sum(name in one.counts for one in applications) == 1]
        print(f"{len(customers)} customers, {len(at_one)} of them at one application:")
        for one in applications:
            orders, payments = (sum(of[index] for of in one.counts.values()) for index in (0, 1))
            print(f"  {one.name} has counted {orders} orders and {payments} payments of {len(one.counts)} customers")


def group_is_complete(groups: Groups) -> bool:
    """Return whether three members share the partitions of both topics."""
    if groups.states().get(GROUP) != "Stable":
        return False
    members = groups.describe(GROUP).members
    return len(members) == 3 and sum(len(one.partitions) for one in members) == 2 * PARTITIONS


if __name__ == "__main__":
    if sys.argv[1:2] == ["--application"]:
        spark_application(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
