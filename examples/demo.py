"""A demo of the main use: read orders in a batch and as a stream, as members of a consumer group.

./run demo                                  on an embedded Kafka
./run demo HOST:9092 TOPIC [OPTION=VALUE …] shows records of your own topic, joins no group and commits nothing
"""

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import round as rounded
from pyspark.sql.functions import sum as total
from rich.console import Console
from rich.table import Table

from examples.lag_plot import lag_plot
from examples.setting import ORDER, ORDERS, PARTITIONS, kafka, produce, spark, until
from kafkagroup import Settings
from kafkagroup.admin import Group, Groups, PartitionLag

GROUP = "order-book"
FIRST, SECOND = 4_000, 1_000
# With small micro-batches, the plot shows how the lag falls.
AT_ONCE = 500

console = Console(width=110)


def main(servers: str | None = None, topic: str = "", *options: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    if servers is None:
        demonstrate()
    elif topic and all("=" in option for option in options):
        show_own(servers, topic, dict(option.split("=", 1) for option in options))
    else:
        raise SystemExit(__doc__)


def demonstrate() -> None:
    """Read orders on an embedded Kafka."""
    with ExitStack() as stack:
        with waiting("Starting an embedded Kafka (the first start downloads its jars, 45 MB)"):
            servers = stack.enter_context(kafka())
        with waiting("Starting Spark"):
            session = stack.enter_context(spark("kafkagroup demo"))
        with waiting(f"Producing {FIRST} orders into {PARTITIONS} partitions of topic {ORDERS}"):
            produce(servers, FIRST)
        groups = Groups(Settings({"bootstrap.servers": servers}))
        read_batch(session, servers)
        console.print(lag_table(groups.lag(GROUP, topics=[ORDERS]), f"lag of group {GROUP} before the stream"))
        seen = read_stream(session, servers, groups)
        console.print(lag_table(groups.lag(GROUP, topics=[ORDERS]), f"lag of group {GROUP} after the stream"))
    console.print(lag_plot(seen, f"lag of group {GROUP} while the stream ran"), markup=False, highlight=False)
    console.print("To show your own topic, without a group or a commit: ./run demo HOST:9092 TOPIC", markup=False)


def show_own(servers: str, topic: str, options: Mapping[str, str]) -> None:
    """Show ten records of a topic. Without a group, reading changes nothing in Kafka."""
    with ExitStack() as stack:
        with waiting("Starting Spark"):
            session = stack.enter_context(spark("kafkagroup demo"))
        rows = (
            session.read.format("kafkagroup")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .options(**options)
            .load()
        )
        shown = rows.select("partition", "offset", "timestamp", col("key").cast("string"), col("value").cast("string"))
        with waiting(f"Reading the first records of {topic}"):
            console.print(as_table(shown.limit(10), f"records of {topic}"))
    console.print("docs/reading.md lists the options; docs/group.md explains consumer groups.", markup=False)


def read_batch(session: SparkSession, servers: str) -> None:
    """Read the topic as a batch without a group, so no offsets are committed."""
    rows = (
        session.read.format("kafkagroup").option("kafka.bootstrap.servers", servers).option("subscribe", ORDERS).load()
    )
    with waiting("Reading the topic as a batch"):
        sales = by_product(rows).collect()
        first = rows.orderBy("offset", "partition").limit(5)
        sample = first.select("partition", "offset", col("key").cast("string"), col("value").cast("string"))
        console.print(as_table(sample, "some rows of the batch"))
    table = Table("product", "orders", "amount", title="sales, read as a batch")
    for row in sales:
        table.add_row(row["product"], str(row["orders"]), f"{row['amount']:.2f}")
    console.print(table)


def read_stream(session: SparkSession, servers: str, groups: Groups) -> list[tuple[float, int]]:
    """Read the topic as a stream: join the group, read new orders as they arrive, commit after each micro-batch.

    Returns:
        Samples of the group's lag while the stream ran: time and lag.
    """
    orders = (
        session.readStream.format("kafkagroup")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", ORDERS)
        .option("kafka.group.id", GROUP)
        .option("group.members", 2)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", AT_ONCE)
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            by_product(orders)
            .writeStream.format("memory")
            .queryName("sales")
            .outputMode("complete")
            .option("checkpointLocation", str(Path(checkpoint)))
            .start()
        )
        try:
            with waiting(f"Joining group {GROUP}"):
                until(lambda: groups.states().get(GROUP) == "Stable")
            with lag_over_time(groups) as seen:
                with waiting(f"Streaming {FIRST} orders"):
                    until(lambda: sold(session) >= FIRST)
                console.print(members_table(groups.describe(GROUP)))
                with waiting(f"Producing {SECOND} more orders while the stream runs"):
                    produce(servers, SECOND, first=FIRST)
                    until(lambda: sold(session) >= FIRST + SECOND)
                    until(lambda: all(row.lag == 0 for row in groups.lag(GROUP)))
            console.print(as_table(session.table("sales").orderBy("product"), "sales, kept by the stream"))
        finally:
            query.stop()
    if sold(session) != FIRST + SECOND:
        raise SystemExit(f"The stream counted {sold(session)} orders, expected {FIRST + SECOND}.")
    console.print(f"[green]All {FIRST + SECOND} orders were read exactly once.[/green]")
    return seen


def by_product(rows: DataFrame) -> DataFrame:
    order = from_json(col("value").cast("string"), ORDER).alias("order")
    sales = rows.select(order).groupBy(col("order.product").alias("product"))
    return sales.agg(count("*").alias("orders"), rounded(total("order.amount"), 2).alias("amount"))


def sold(session: SparkSession) -> int:
    return session.table("sales").agg(total("orders")).collect()[0][0] or 0


def as_table(rows: DataFrame, title: str) -> Table:
    table = Table(*rows.columns, title=title)
    for row in rows.collect():
        table.add_row(*map(str, row))
    return table


def members_table(group: Group) -> Table:
    table = Table("member", "client", "host", "partitions", title=f"group {group.group}: {group.state}")
    for member in group.members:
        owned = ", ".join(f"{tp.topic}-{tp.partition}" for tp in member.partitions)
        table.add_row(member.name, member.client_id, member.host, owned or "none")
    return table


def lag_table(rows: Iterable[PartitionLag], title: str) -> Table:
    table = Table("topic", "partition", "committed", "end", "lag", title=title)
    for row in rows:
        committed = "none" if row.committed is None else str(row.committed)
        table.add_row(row.topic, str(row.partition), committed, str(row.end), str(behind(row)))
    return table


def behind(row: PartitionLag) -> int:
    return row.behind or 0


@contextmanager
def lag_over_time(groups: Groups) -> Iterator[list[tuple[float, int]]]:
    """Sample the group's lag every 0.1 s while the block runs, and once at the end of the block."""
    seen: list[tuple[float, int]] = []
    ended = threading.Event()

    def look() -> None:
        while True:
            last = ended.wait(0.1)
            lag = sum(map(behind, groups.lag(GROUP, topics=[ORDERS])))
            seen.append((time.monotonic(), lag))
            if last:
                return

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            ended.set()
            looking.result()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    began = time.monotonic()
    with console.status(f"{what} …"):
        yield
    console.print(f"[dim]{what}: {time.monotonic() - began:.1f} s[/dim]")


if __name__ == "__main__":
    main(*sys.argv[1:])
