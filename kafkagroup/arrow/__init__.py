"""Kafka's records as Arrow tables, and Arrow tables as Kafka's records, without Spark and without a JVM.

    from kafkagroup import arrow

    with arrow.read("orders", {"bootstrap.servers": "broker:9092"}, start="-1h") as orders:
        frame = polars.DataFrame(orders)

Settings have the names of Kafka's clients. docs/guides/without-spark.md compares this package with Spark.
"""

from kafkagroup.arrow.consuming import GroupStream, consume
from kafkagroup.arrow.decoding import decode_values
from kafkagroup.arrow.progress import Progress
from kafkagroup.arrow.reading import BoundedStream, read
from kafkagroup.arrow.stream import Stream
from kafkagroup.arrow.writing import Transaction, write

__all__ = [
    "BoundedStream",
    "GroupStream",
    "Progress",
    "Stream",
    "Transaction",
    "consume",
    "decode_values",
    "read",
    "write",
]
