"""A nightly batch that starts at the group's committed offsets, so it reads the records since the last run.

./run python -m examples.batch [SERVERS]
"""

import sys

from pyspark.sql import SparkSession

import kafkagroup
from examples.setting import ORDERS, kafka, produce, spark

GROUP = "nightly"


def nightly(session: SparkSession, servers: str) -> int:
    """Count the new orders. The end of the `with` block commits their offsets, when the count is known."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": ORDERS, "kafka.group.id": GROUP}
    with kafkagroup.pinned(session, options, "value binary") as orders:
        return orders.count()


def main(servers: str | None = None) -> None:
    with kafka(servers) as running, spark("nightly") as session:
        produce(running, 500)
        print(f"first night: {nightly(session, running)} new orders")
        produce(running, 200, first=500)
        print(f"second night: {nightly(session, running)} new orders")
        print(f"third night: {nightly(session, running)} new orders")


if __name__ == "__main__":
    main(*sys.argv[1:])
