"""A nightly batch that reads the records since the last run: it starts at the group's committed offsets.

./run python -m examples.batch [SERVERS]
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from examples.setting import ORDERS, kafka, produce, spark

GROUP = "nightly"


def nightly(session: SparkSession, servers: str) -> int:
    """Count the new orders. Each task commits the offsets of its slot after it has read all its records."""
    rows = (
        session.read.format("kafkagroup")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", ORDERS)
        .option("kafka.group.id", GROUP)
        .option("commit", "task")
        .schema("value binary")
        .load()
    )
    return rows.count()


def main(servers: str | None = None) -> None:
    with kafka(servers) as running, spark("nightly") as session:
        produce(running, 500)
        print(f"first night: {nightly(session, running)} new orders")
        produce(running, 200, first=500)
        print(f"second night: {nightly(session, running)} new orders")
        print(f"third night: {nightly(session, running)} new orders")


if __name__ == "__main__":
    main(*sys.argv[1:])
