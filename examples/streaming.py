"""A stream with a checkpoint that writes files: after a restart, every order is in the files exactly once.

./run python -m examples.streaming [SERVERS]
"""

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from examples.setting import ORDER, ORDERS, kafka, produce, spark


def run_until_done(session: SparkSession, servers: str, folder: str) -> None:
    """Read all records that exist now, in micro-batches of 200 orders, and stop."""
    orders = (
        session.readStream.format("kafkagroup")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", ORDERS)
        .option("kafka.group.id", "archive")
        # As static members (KIP-345), the query's members keep their partitions over a restart, without a rebalance.
        .option("kafka.group.instance.id", "archive-1")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
    )
    query = (
        orders.select(from_json(col("value").cast("string"), ORDER).alias("order"))
        .select("order.*")
        .writeStream.format("parquet")
        .option("path", f"{folder}/orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(servers: str | None = None) -> None:
    with kafka(servers) as running, spark("archive") as session, tempfile.TemporaryDirectory() as folder:
        produce(running, 500)
        run_until_done(session, running, folder)
        produce(running, 300, first=500)
        run_until_done(session, running, folder)
        archived = session.read.parquet(f"{folder}/orders")
        print(f"archived {archived.count()} orders with {archived.select('id').distinct().count()} different ids")


if __name__ == "__main__":
    main(*sys.argv[1:])
