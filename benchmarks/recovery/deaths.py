"""Kill processes and start them again; choose the broker to kill."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from confluent_kafka import ElectionType, KafkaException
from pyspark.sql import SparkSession

from kafka_source.client_config import Settings
from kafka_source.kafka_client import GROUP, Deadline, EventLoop, KafkaClient
from kafkagroup.embedded import EmbeddedKafka, run_java
from testbed.spark_cluster import SparkCluster

LONGEST_SECONDS = 120.0
# The active controller coordinates about a third of all groups.
_MAX_NAMES = 100
_names = count(1)


@dataclass(frozen=True)
class Death:
    """A death, and the return to the previous state.

    Attributes:
        kill: Kills a process by SIGKILL.
        mend: Starts the process again, and waits until all is as before.
    """

    kill: Callable[[], None]
    mend: Callable[[], None]


@dataclass(frozen=True)
class Roles:
    """A new group, and the roles of the brokers.

    No broker here is the active controller, because its death would add an election of controllers to some times.

    Attributes:
        group: The group's name.
        coordinator: The broker that coordinates the group.
        leader: The broker that only leads partitions.
    """

    group: str
    coordinator: int
    leader: int


@dataclass(frozen=True)
class Stage:
    """The processes that may die: brokers, and the workers of a Spark session's cluster."""

    kafka: EmbeddedKafka
    workers: SparkCluster
    spark: SparkSession

    def roles(self) -> Roles:
        """Return the name of a new group, and the brokers to kill or to spare."""
        controller = self._controller()
        names = (f"recovery-{next(_names)}" for _ in range(_MAX_NAMES))
        found = ((name, self._coordinator(name)) for name in names)
        group, coordinator = next((name, node) for name, node in found if node != controller)
        (leader,) = set(self.kafka.node_ids) - {controller, coordinator}
        return Roles(group, coordinator, leader)

    def nobody(self, _: Roles) -> Death:
        """Kill no process, for comparison: the time to the commit of a micro-batch that begins from now on."""
        return Death(lambda: None, lambda: None)

    def worker(self, _: Roles) -> Death:
        """A worker with its executor. Each worker has one core and runs one of the tasks."""
        number = next(_names) % len(self.workers.numbers)

        def mend() -> None:
            self.workers.start_worker(number)
            self.wait_for_executors()

        return Death(lambda: self.workers.kill_worker(number), mend)

    def leader(self, roles: Roles) -> Death:
        """A broker that leads partitions and does not coordinate the group."""
        return self._broker(roles.leader)

    def coordinator(self, roles: Roles) -> Death:
        """The broker that coordinates the group; it leads partitions too."""
        return self._broker(roles.coordinator)

    def wait_for_executors(self) -> None:
        """Wait until the driver has an executor on each worker."""
        status = self.spark.sparkContext._jsc.sc().statusTracker()
        # The list has the driver too.
        _until(lambda: len(status.getExecutorInfos()) == len(self.workers.numbers) + 1, "the executors")

    def _broker(self, node: int) -> Death:
        def mend() -> None:
            self.kafka.restart(node)
            _until(self._as_before, "the leaders from before")

        return Death(lambda: self.kafka.kill(node), mend)

    def _as_before(self) -> bool:
        """Make the preferred replicas leaders, and return whether all are leaders with all replicas in sync."""
        admin = self.kafka.admin()
        try:
            admin.elect_leaders(ElectionType.PREFERRED, None).result(timeout=30)
            topics = admin.list_topics(timeout=10).topics.values()
        except KafkaException:
            return False
        found = [partition for topic in topics for partition in topic.partitions.values()]
        return all(one.leader == one.replicas[0] and len(one.isrs) == len(one.replicas) for one in found)

    def _controller(self) -> int:
        arguments = ("--bootstrap-server", self.kafka.internal_bootstrap_servers, "describe", "--status")
        told = run_java("org.apache.kafka.tools.MetadataQuorumCommand", *arguments)
        found = re.search(r"^LeaderId:\s+(\d+)$", told.stdout, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"no active controller in: {told.stdout}{told.stderr}")
        return int(found[1])

    def _coordinator(self, group: str) -> int:
        loop = EventLoop.shared()
        client = KafkaClient(Settings({"bootstrap.servers": self.kafka.internal_bootstrap_servers}), loop, "bench")
        try:
            return int(loop.run(client.coordinator(group, Deadline(30), GROUP)).node_id)
        finally:
            client.close()


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {LONGEST_SECONDS:g} s in vain for {what}")
        time.sleep(0.2)
