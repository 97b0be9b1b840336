"""Join two topics without a shuffle: the group assigns the same partition numbers of both topics to each slot.

./run python -m examples.copartitioned [SERVERS]

Orders and customers are keyed by customer, so a customer and its orders are in partitions with the same number. Each
slot is one Spark input partition, so one task reads the customer and its orders, and `mapInArrow` joins them.
"""

import json
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count

from examples.setting import ORDERS, PARTITIONS, kafka, make_topic, produce, spark

CUSTOMERS = "customers"


def produce_customers(servers: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for n in range(number):
        customer = f"customer-{n}"
        producer.produce(CUSTOMERS, key=customer, value=json.dumps({"customer": customer, "city": f"city-{n % 7}"}))
    producer.flush(30)


def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the rows of one slot: the customers and the orders in partitions with the same numbers."""
    table = pa.Table.from_batches(list(batches))
    if table.num_rows == 0:
        return
    cities, orders = {}, []
    for topic, value in zip(table["topic"].to_pylist(), table["value"].to_pylist(), strict=True):
        said = json.loads(value)
        if topic == CUSTOMERS:
            cities[said["customer"]] = said["city"]
        else:
            orders.append(said)
    rows = [{"id": order["id"], "city": cities.get(order["customer"]), "amount": order["amount"]} for order in orders]
    yield from pa.Table.from_pylist(rows, JOINED_ARROW).to_batches()


JOINED = "id int, city string, amount double"
JOINED_ARROW = pa.schema([("id", pa.int32()), ("city", pa.string()), ("amount", pa.float64())])


def joined(session: SparkSession, servers: str) -> DataFrame:
    return (
        session.read.format("kafkagroup")
        .schema("topic string, value string")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{ORDERS},{CUSTOMERS}")
        .option("kafka.group.id", "orders-by-city")
        # If the topics have different numbers of partitions, `copartition` fails. `range` would not fail, but assign a
        # customer and its orders to different members, and the join would lose rows.
        .option("kafka.partition.assignment.strategy", "copartition")
        .option("group.members", PARTITIONS)
        .load()
        .mapInArrow(join, JOINED)
    )


def main(servers: str | None = None) -> None:
    with kafka(servers) as running, spark("copartitioned") as session:
        make_topic(running, CUSTOMERS)
        produce_customers(running, 200)
        produce(running, 1000)
        orders = joined(session, running)
        orders.explain()
        [found] = orders.select(count("*"), count("city")).collect()
        print(f"{found[0]} orders, {found[1]} with the city of their customer")


if __name__ == "__main__":
    main(*sys.argv[1:])
