"""Two applications in one group: a Spark stream and a Python consumer share the partitions of a topic.

./run python -m examples.two_applications [SERVERS]
"""

import sys
import tempfile

from confluent_kafka import Consumer

from examples.setting import ORDERS, kafka, produce, spark, until
from kafkagroup import Settings
from kafkagroup.admin import Group, Groups

GROUP = "shared"


def tell(group: Group) -> None:
    print(f"group {group.group} is {group.state}:")
    for member in group.members:
        print(f"  {member.client_id}: {', '.join(f'{tp.topic}-{tp.partition}' for tp in member.partitions) or 'none'}")


def main(servers: str | None = None) -> None:
    with kafka(servers) as running, spark("shared") as session, tempfile.TemporaryDirectory() as checkpoint:
        produce(running, 100)
        groups = Groups(Settings({"bootstrap.servers": running}))
        query = (
            session.readStream.format("kafkagroup")
            .option("kafka.bootstrap.servers", running)
            .option("subscribe", ORDERS)
            .option("kafka.group.id", GROUP)
            .option("group.members", 2)
            .option("kafka.heartbeat.interval.ms", 500)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        until(lambda: groups.states().get(GROUP) == "Stable")
        tell(groups.describe(GROUP))

        config = {"bootstrap.servers": running, "group.id": GROUP, "partition.assignment.strategy": "range"}
        python = Consumer({**config, "client.id": "plain-python"})
        python.subscribe([ORDERS])
        try:
            until(lambda: python.poll(0.1) is not None or bool(python.assignment()))
            tell(groups.describe(GROUP))
        finally:
            python.close()

        # Spark's slots notice the rebalance between two micro-batches, rejoin, and get the partitions back.
        until(lambda: sum(len(m.partitions) for m in groups.describe(GROUP).members) == 4)
        tell(groups.describe(GROUP))
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
