"""Write Avro values of a topic to a table, with the columns of a schema registry. Other values become dead letters.

./run python -m examples.values [SERVERS REGISTRY_URL]
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from examples.setting import ORDERS, kafka, make_topic, produce, spark
from kafkagroup.embedded import SchemaRegistry

DEAD = "orders-dead"


def write(session: SparkSession, avro: dict[str, str], count: int) -> None:
    """Write orders as Avro. The schema of the column is registered before the first order."""
    orders = session.range(count).selectExpr(
        "CAST(id AS STRING) AS key", "struct(id, id % 90 + 0.5D AS amount) AS value"
    )
    sink = orders.write.format("kafkagroup").mode("append").options(**avro)
    sink.option("topic", ORDERS).option("auto.register.schemas", "true").save()


def archive(session: SparkSession, avro: dict[str, str], folder: str) -> None:
    """Append the new orders to a table. A value that is not Avro becomes a dead letter before any commit."""
    orders = (
        session.readStream.format("kafkagroup")
        .options(**avro)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("mode", "DROPMALFORMED")
        .option("deadletter.topic", DEAD)
        .load()
    )
    table = orders.select("value.*", "timestamp").writeStream.format("parquet").trigger(availableNow=True)
    table.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/orders").awaitTermination()


@contextmanager
def schema_registry(url: str | None = None) -> Iterator[str]:
    """Yield `url`, or the URL of an embedded schema registry that runs during the block."""
    if url:
        yield url
        return
    with SchemaRegistry() as embedded:
        yield embedded.url


def main(servers: str | None = None, registry: str | None = None) -> None:
    with (
        kafka(servers) as running,
        schema_registry(registry) as url,
        spark("values") as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        make_topic(running, DEAD)
        broker = {"kafka.bootstrap.servers": running}
        avro = {**broker, "value.format": "avro", "schema.registry.url": url}
        write(session, avro, 500)
        # These orders are JSON, as from another program.
        produce(running, 3)
        archive(session, avro, folder)
        orders = session.read.parquet(f"{folder}/orders").count()
        dead = session.read.format("kafkagroup").options(**broker).option("subscribe", DEAD).load().count()
        print(f"{orders} orders in the table, {dead} dead letters")


if __name__ == "__main__":
    main(*sys.argv[1:])
