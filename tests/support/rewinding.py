"""Streams of a group as Spark drives them, without Spark, for tests that rewind the group."""

from assignors import TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.memberships import everything
from tests.support.mixed_group import Worker
from tests.support.queries import query_of
from tests.support.waiting import wait_until

PARTITIONS = 4
COUNT = 200


class Runner(Worker):
    """A stream as Spark drives it: plans batch after batch, and says that one is durable when the next is planned."""

    def __init__(self, planner: MicroBatches, start: StreamOffset) -> None:
        self.planner, self.offset = planner, start
        self.read: list[Range] = []
        super().__init__()

    def _run(self) -> None:
        try:
            while not self._closing.wait(0.02):
                end = self.planner.next(self.offset, limited=True)
                if end is self.offset:
                    continue
                self.read += [
                    r for b in self.planner.tasks(self.offset, end) for task in b.tasks for r in task.ranges if r.size
                ]
                self.offset = end
        finally:
            self.planner.close()

    def ranges(self, tp: TopicPartition) -> list[tuple[int, int]]:
        return [(r.start, r.end) for r in self.read if r.topic_partition == tp]


class Streams:
    """Makes queries of one topic and group, and closes them at the end.

    Args:
        kafka: The broker.
        topic: The topic.
        group: The group.
    """

    def __init__(self, kafka: EmbeddedKafka, topic: str, group: str) -> None:
        self._kafka, self._topic, self._group = kafka, topic, group
        self._runners: list[Runner] = []

    def planner(self, **options: object) -> MicroBatches:
        """A query that the test drives itself; options with _ for . in their names."""
        quick: dict[str, object] = {"min.records.per.task": 1}
        if "assign" not in options:
            quick["group.members"] = 2
            if "kafka_group_protocol" not in options:
                quick["kafka.heartbeat.interval.ms"] = 200
        named = {key.replace("_", "."): value for key, value in options.items()}
        subscribed = {} if named.keys() & {"assign", "subscribePattern"} else {"subscribe": self._topic}
        servers = {"kafka.bootstrap.servers": self._kafka.bootstrap_servers, "kafka.group.id": self._group}
        return MicroBatches(query_of({**subscribed, **servers, "startingOffsets": "earliest", **quick, **named}))

    def run(self, start: StreamOffset | None = None, **options: object) -> Runner:
        """A query that runs; `start` is the checkpoint."""
        self._runners.append(Runner(self.planner(**options), start or StreamOffset()))
        return self._runners[-1]

    def error_of(self, runner: Runner, seconds: float) -> KafkaGroupError:
        """The error with which a query ends by itself."""

        def ended() -> KafkaGroupError | None:
            try:
                runner.check()
            except KafkaGroupError as error:
                return error
            return None

        error = wait_until(ended, "the error of the query", seconds)
        self._runners.remove(runner)
        return error

    def close(self) -> None:
        """Closes all that run."""
        for one in self._runners:
            one.close()


def ends(groups: Groups, name: str) -> dict[TopicPartition, int]:
    rows = groups.lag("nobody", everything(name, PARTITIONS))
    return {TopicPartition(row.topic, row.partition): row.end for row in rows if row.end is not None}


def all_committed(groups: Groups, group: str, name: str, *runners: Runner) -> None:
    def there() -> bool:
        for runner in runners:
            runner.check()
        return groups.committed(group) == ends(groups, name)

    wait_until(there, "all records to be read and committed")


def covered(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether ranges read [start, end) once, in order."""
    at = start
    for low, high in ranges:
        if low != at:
            return False
        at = high
    return at == end
