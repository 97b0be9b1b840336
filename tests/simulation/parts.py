"""Create the parts of a scenario's world: brokers with their coordinators, queries, and other applications."""

import functools
import json
from collections.abc import Callable

from kafkagroup.admin import Halted
from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.consumer_coordinator import ConsumerCoordinators
from tests.simulation.brokers.group_coordinator import Group, GroupCoordinators
from tests.simulation.brokers.transaction_coordinator import TransactionCoordinators
from tests.simulation.clients import other_client
from tests.simulation.clients.batches import BatchApplication
from tests.simulation.clients.jobs import OUTPUT, OUTPUT_PARTITIONS
from tests.simulation.clients.other_client import OtherClient
from tests.simulation.clients.siblings import SimulatedSiblings
from tests.simulation.clients.spark import Load, Output, Query
from tests.simulation.scenario import CONSUMER, LONG_POLL_MS, Scenario
from tests.simulation.world import Process, World

TOPIC, GROUP_ID = "orders", "billing"


class Parts:
    """The parts of a scenario's world, not started yet.

    Attributes:
        output: The output of the queries and the other applications.
        queries: The applications that use our source; `batches` are those that read batches.
        others: The applications of other clients.
        plain: The processes that never commit in transactions.
        operators: The processes of programs that rewind or halt the group.
        halted: Observes the result that a program got when it waited for its halt.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = world = World(scenario.seed)
        self.cluster = Cluster(world, scenario.brokers)
        self.output = Output(self.cluster)
        self.groups = GroupCoordinators(self.cluster)
        self.consumers = ConsumerCoordinators(self.cluster, self.groups, scenario.session_ms / 1000, self._heartbeat_ms)
        self.transactions = TransactionCoordinators(self.cluster, self.groups)
        self.transactions.max_epoch = scenario.max_epoch
        self.cluster.names_only = scenario.names_only
        self.cluster.read_committed = scenario.reading.committed
        self.cluster.fetches.version = scenario.reading.version
        self.cluster.fetches.throttled = scenario.reading.throttled
        self.cluster.fetches.far = scenario.reading.far
        self.cluster.transaction_version = scenario.transaction_version
        self.transactions.slow_markers = scenario.slow_markers
        self.cluster.create_topic(TOPIC, scenario.partitions)
        if scenario.sink:
            self.cluster.create_topic(OUTPUT, OUTPUT_PARTITIONS)
        load = Load(share_of_long=scenario.share_of_long)
        self.cluster.retention = scenario.retention
        self.queries: list[Query] = [
            Query(
                world,
                f"query-{number}",
                self._options(number),
                self.output,
                load,
                runs_tasks=scenario.runs_tasks,
                sink=self._sink_options(number),
            )
            for number in range(scenario.queries)
        ]
        for query in self.queries:
            query.listens, query.available_now = scenario.listens, scenario.available_now
        self.batches = [
            BatchApplication(
                world, f"batches-{number}", self._batch_options(), self.output, load, runs_tasks=True, sink=None
            )
            for number in range(scenario.batches)
        ]
        if scenario.siblings:
            family: list[SimulatedSiblings] = []
            for query in self.queries:
                query.siblings = functools.partial(SimulatedSiblings, reads=family)
        self.queries += self.batches
        self.plain: list[Process] = []
        self.operators: list[Process] = []
        self.halted: Callable[[Halted], None] = lambda _: None
        self.others = [self._other(f"other-{number}") for number in range(scenario.others)]

    @property
    def group(self) -> Group:
        """Return the group of all applications, in its coordinator's state."""
        return self.groups.group(GROUP_ID)

    def _other(self, name: str) -> OtherClient:
        settings = other_client.settings_of(GROUP_ID, name, self.scenario.session_ms)
        return OtherClient(
            self.world, name, self.cluster, self.output, settings, TOPIC, self.scenario.strategy, self.plain
        )

    @property
    def _heartbeat_ms(self) -> int:
        return max(2000, self.scenario.session_ms // 10)

    def _options(self, query: int) -> dict[str, str]:
        scenario = self.scenario
        is_assigned = scenario.selects == "assign"
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            scenario.selects: json.dumps({TOPIC: [*range(scenario.partitions)]}) if is_assigned else TOPIC,
            "kafka.group.id": GROUP_ID,
            "startingOffsets": "earliest",
            "kafka.max.poll.interval.ms": str(LONG_POLL_MS),
            "kafka.request.timeout.ms": "10000",
            "kafka.metadata.max.age.ms": "5000",
            "commit.transactional": str(scenario.transactional).lower(),
            "maxOffsetsPerTrigger": "200",
            "failOnDataLoss": str(scenario.fail_on_loss).lower(),
        }
        if scenario.static:
            options["kafka.group.instance.id"] = f"instance-{query}"
        if scenario.runs_tasks:
            options |= {"commit": scenario.commit_of(query), "min.records.per.task": "1"}
        if scenario.runs_tasks or scenario.batches:
            options |= {
                "engine": "native",
                "batch.rows": "20",
                "kafkaConsumer.pollTimeoutMs": "15000",
                "data.loss.patience.ms": "2000",
                "kafka.isolation.level": "read_committed" if scenario.reading.committed else "read_uncommitted",
                "kafka.max.partition.fetch.bytes": str(scenario.reading.fetch_bytes),
                "kafka.fetch.max.bytes": str(scenario.reading.fetch_bytes * 4),
            }
            if scenario.reading.far:
                options["kafka.client.rack"] = "elsewhere"
        if is_assigned:
            return options
        options |= {"group.members": str(scenario.slots), "group.on.lost": scenario.on_lost}
        if scenario.strategy == CONSUMER:
            return {**options, "kafka.group.protocol": "consumer"}
        return {
            **options,
            "kafka.partition.assignment.strategy": scenario.strategy,
            "kafka.session.timeout.ms": str(scenario.session_ms),
            "kafka.heartbeat.interval.ms": str(self._heartbeat_ms),
        }

    def _batch_options(self) -> dict[str, str]:
        """Return the options of batches: those of a stream, without an instance id and without stream-only options."""
        of_streams = ("maxOffsetsPerTrigger", "group.on.lost", "kafka.group.instance.id")
        options = {name: value for name, value in self._options(0).items() if name not in of_streams}
        return {**options, "commit": "task", "kafka.max.poll.interval.ms": str(self.scenario.batch_poll_ms)}

    def _sink_options(self, query: int) -> dict[str, str] | None:
        scenario = self.scenario
        if not scenario.sink:
            return None
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "topic": OUTPUT,
            "kafka.request.timeout.ms": "10000",
            "engine": "native",
        }
        if not scenario.exactly_once:
            return options
        options |= {
            "transactional": "true",
            "transactional.id.prefix": f"copy-{query}",
            "kafka.transaction.timeout.ms": str(scenario.timeout_ms),
            "transactional.on.lost": "replay" if scenario.may_lose_transactions else "stop",
        }
        return {**options, "commit.group": GROUP_ID} if scenario.commit_of(query) == "sink" else options
