"""The faults of a scenario, and their effects."""

import contextlib
import functools

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import GROUP
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from kafka_source.model.stream_offset import StreamOffset
from kafkagroup.admin import Groups, rewind_running_group
from tests.simulation.brokers.group_coordinator import Committed, Group, Key, Watch
from tests.simulation.clients.batches import BatchApplication
from tests.simulation.clients.spark import Query
from tests.simulation.halts import Halts
from tests.simulation.parts import GROUP_ID, TOPIC, Parts
from tests.simulation.scenario import CONSUMER, Fault
from tests.simulation.world import Died, Process
from tests.support.record_messages import ProduceRequest

# The requests before which a process may be suspended or die.
_DANGEROUS = tuple(
    one.API_KEY
    for one in (
        AddOffsetsToTxnRequest,
        ConsumerGroupHeartbeatRequest,
        EndTxnRequest,
        HeartbeatRequest,
        InitProducerIdRequest,
        JoinGroupRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
    )
)
# The settings that a user changes before a query starts again.
_CHANGES = (
    ("minPartitions", "5"),
    ("maxRecordsPerPartition", "7"),
    ("maxOffsetsPerTrigger", "30"),
    ("group.members", "1"),
    ("group.members", "3"),
    ("min.records.per.task", "100"),
)
# With these options, several tasks may read one partition.
_SPLIT = ("minPartitions", "maxRecordsPerPartition")
_DANGEROUS_TO_TASKS = tuple(
    one.API_KEY
    for one in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
    )
)


class Faults(Watch):
    """Makes faults happen to the parts of a world."""

    def __init__(self, parts: Parts) -> None:
        self._scenario, self._world, self._cluster = parts.scenario, parts.world, parts.cluster
        self._parts = parts
        self._halts = Halts(parts)
        # Whether the coordinator moves in the next rebalance.
        self._moves_in_rebalance = False
        # The programs that set the offsets of a group without members.
        self._rewind_stopped: list[Process] = []
        # The workers that are suspended until the world is quiet.
        self._held: list[Process] = []
        # The workers that are suspended before they publish their batch's offsets, by the side group for these offsets.
        self._publishers: dict[str, Process] = {}
        parts.groups.watches.append(self)

    @property
    def held(self) -> tuple[Process, ...]:
        """Return the workers that are suspended until another event resumes them."""
        return (*self._held, *self._publishers.values())

    def begins(self, what: str) -> None:
        if self._moves_in_rebalance:
            self._moves_in_rebalance = False
            delay = self._world.random.choice((0.002, 0.005, 0.02, 0.1))
            self._world.after(delay, lambda: self._cluster.move_coordinator(GROUP, GROUP_ID))

    def committed(self, group: Group, entries: dict[Key, Committed]) -> None:
        """Soon after a worker has published offsets, resume another worker that is suspended before it publishes."""
        waiting, client = self._publishers.get(group.name), self._cluster.client
        if waiting is not None and client is not None and client.task is not None and client is not waiting:
            del self._publishers[group.name]
            self._world.after(self._world.random.uniform(0, 0.2), waiting.thaw)

    def happen(self, fault: Fault) -> None:
        """Make a fault happen."""
        world, how = self._world, fault.how
        query = self._parts.queries[int(fault.which * len(self._parts.queries))]
        broker = self._cluster.brokers[1 + int(fault.which * len(self._cluster.brokers))]
        world.tell(
            "fault",
            f"{fault.kind}: {query.name if 'quer' in fault.kind or fault.kind in ('kill', 'freeze') else broker.node}",
        )
        match fault.kind:
            case "kill":
                query.kill(how * 15)
            case "freeze":
                if query.process is not None and query.process.alive and not query.process.frozen:
                    query.process.freeze(0.5 + how * 30)
            case "stop broker":
                if broker.up and sum(one.up for one in self._cluster.brokers.values()) > min(
                    1, len(self._cluster.brokers) - 1
                ):
                    self._cluster.stop_broker(broker.node)
                    world.after(1 + how * 20, functools.partial(self._cluster.start_broker, broker.node))
            case "freeze broker":
                if not broker.frozen:
                    broker.frozen = True
                    world.after(0.1 + how * 8, broker.thaw)
            case "cut":
                for link in list(broker.links):
                    if world.random.random() < 0.2 + 0.8 * how:
                        link.cut()
            case "slow broker":
                broker.slow = how * 2
                world.after(8.0, lambda: setattr(broker, "slow", 0.0))
            case "lose answers":
                only = None if how < 0.4 else world.random.choice(_DANGEROUS)
                moves = world.random.random() < 0.5 and len(self._cluster.brokers) > 1
                share = how if only is None else 0.5
                self._cluster.lose_answers(1 + fault.which * 8, share, moves=moves, only=only)
            case "freeze before":
                process = self._some_process(query)
                if process is not None and process.alive:
                    self._freeze_before(process, self._dangerous(how), 0.5 + world.random.random() * 30)
            case "kill before":
                process = self._some_process(query)
                if process is not None:
                    process.before(
                        self._dangerous(how), lambda: self._kill_before(query, process), skip=self._skipped()
                    )
            case "replace":
                query.replace(0.5 + how * 30)
            case "run stage again":
                if query.jobs is not None:
                    query.jobs.run_again()
            case "run stage twice":
                query.armed.append(lambda worker, task: self._run_stage_twice(query))
            case "freeze to the end":
                query.armed.append(lambda worker, task: self._freeze_to_the_end(worker, how))
            case "publish late":
                query.armed.append(lambda worker, task: task == 0 and self._publish_late(query, worker))
            case "read by another":
                query.armed.append(lambda worker, task: self._read_by_another(query, how))
            case "lose once":
                about = SyncGroupRequest if self._scenario.strategy != CONSUMER else ConsumerGroupHeartbeatRequest
                commits = InitProducerIdRequest if self._scenario.transactional else OffsetCommitRequest
                self._cluster.lose_once((commits if how < 0.5 else about).API_KEY)
            case "return in rebalance":
                # One member notices the partition, and the other members wait for static members that are away.
                query.kill(how * 8)
                self._cluster.add_partitions(TOPIC, 1)
                self._moves_in_rebalance = True
            case "move group":
                self._cluster.move_coordinator(GROUP, GROUP_ID)
            case "move in rebalance":
                self._moves_in_rebalance = True
            case "move transaction":
                known = [place for place in self._cluster.known_coordinators() if place[0] != GROUP]
                if known:
                    self._cluster.move_coordinator(*known[int(how * len(known))])
            case "change transactions":
                # Clients find the change when they connect again.
                self._cluster.transaction_version = 3 - self._cluster.transaction_version
            case "add partitions":
                self._cluster.add_partitions(TOPIC, 1 + int(how * 3))
            case "kill other":
                self._parts.others[int(fault.which * len(self._parts.others))].kill(how * 15)
            case "freeze other":
                self._parts.others[int(fault.which * len(self._parts.others))].freeze(0.5 + how * 30)
            case "truncate":
                tp = TOPIC, int(fault.which * len(self._cluster.topics[TOPIC].partitions))
                self._end_rewinds()
                self._cluster.truncate(*tp, 1 + int(how * 60))
            case "retain":
                # A program deletes records, read or unread, or retention deletes records by time.
                log = self._cluster.log((TOPIC, int(fault.which * len(self._cluster.topics[TOPIC].partitions))))
                log.read.start = max(log.read.start, int(how * log.end))
            case "move leader":
                log = self._cluster.log((TOPIC, int(fault.which * len(self._cluster.topics[TOPIC].partitions))))
                others = [node for node, one in self._cluster.brokers.items() if one.up and node != log.leader]
                if others:
                    log.elect(others[int(how * len(others))])
            case "damage":
                self._cluster.fetches.damages.append("corrupt" if how < 0.5 else "cut off")
            case "create again":
                self._end_rewinds()
                self._cluster.create_topic(TOPIC, len(self._cluster.topics[TOPIC].partitions))
                self._parts.groups.topic_deleted(TOPIC)
                if how < 0.5 and world.now + how * 8 < self._scenario.seconds:
                    # Other members take the topic's partitions before a query knows the new topic.
                    world.after(how * 8, query.stop if how < 0.25 else functools.partial(query.kill, 20.0))
            case "rewind":
                self._rewind((TOPIC, int(fault.which * len(self._cluster.topics[TOPIC].partitions))), how)
            case "halt":
                self._halts.halt(fault)
            case "change options":
                refused: tuple[str, ...] = ("maxOffsetsPerTrigger",) if isinstance(query, BatchApplication) else ()
                refused += _SPLIT if query.options.get("commit") == "task" else ()
                name, value = [one for one in _CHANGES if one[0] not in refused][int(how * (6 - len(refused)))]
                query.options[name] = value
                if name in _SPLIT:
                    self._parts.output.unordered.add(query.name)
                query.kill(1.0)
            case "change version":
                query.change_version(how)
            case "stop query":
                query.stop()
            case "start query":
                query.start()

    def _end_rewinds(self) -> None:
        """End the rewinds of stopped groups, which have offsets of the previous log; other rewinds look again."""
        for operator in self._rewind_stopped:
            operator.kill()

    def _rewind(self, tp: Key, how: float) -> None:
        """Let a program rewind the group: while it runs, or (half of the time) after a stop."""
        topic, group = self._cluster.topics[TOPIC], self._parts.group
        entry = group.offsets.get(tp)
        if entry is None or not entry.is_of(topic.id):
            return
        if how >= 0.5:
            for query in self._parts.queries:
                query.kill(40.0)
        settings = Settings({"bootstrap.servers": self._cluster.bootstrap_servers, "request.timeout.ms": "10000"})
        operator = self._world.process(f"operator-{len(self._parts.operators)}")
        self._parts.operators.append(operator)
        if how >= 0.5:
            self._rewind_stopped.append(operator)

        def work() -> None:
            for _ in range(4):
                if self._cluster.topics[TOPIC] is not topic or tp not in group.offsets:
                    break
                # An offset after the group's offset, or after the place where a log diverges, would skip records there.
                most = min(self._cluster.end(tp), self._cluster.log(tp).lost_from, group.offsets[tp].offset)
                wanted = {TopicPartition(*tp): min(most, int(how * 2 % 1 * entry.offset))}
                try:
                    if how < 0.5:
                        rewind_running_group(settings, GROUP_ID, wanted, timeout=20.0)
                    else:
                        Groups(settings).rewind(GROUP_ID, wanted)
                    break
                except KafkaGroupError as error:
                    self._world.tell(operator.name, f"cannot rewind: {type(error).__name__}: {error}")
                self._world.sleep(8.0)
            operator.kill()

        def main() -> None:
            with contextlib.suppress(Died):
                work()

        operator.start(main)

    def _dangerous(self, how: float) -> int:
        keys = _DANGEROUS_TO_TASKS if self._scenario.runs_tasks else _DANGEROUS
        return keys[int(how * len(keys))]

    def _skipped(self) -> int:
        # A sink sends this request for several purposes in a batch.
        return self._world.random.choice((0, 0, 1, 2, 4)) if self._scenario.runs_tasks else 0

    def _some_process(self, query: Query) -> Process | None:
        """Return a process of a query: of its planner, its sink or a worker."""
        if isinstance(query, BatchApplication):
            return self._world.random.choice([query.process, *query.processes()])
        if query.jobs is None:
            return query.process
        workers = [one for one in query.jobs.workers if one.alive]
        among = [
            query.process,
            query.jobs.driver,
            query.jobs.driver,
            *([self._world.random.choice(workers)] if workers else []),
        ]
        return self._world.random.choice(among)

    def _freeze_before(self, process: Process, api_key: int, seconds: float) -> None:
        def freeze() -> None:
            self._world.tell(process.name, f"stands still for {seconds:.1f} s before a request {api_key}")
            process.freeze(seconds)

        process.before(api_key, freeze, skip=self._skipped())

    def _kill_before(self, query: Query, process: Process) -> None:
        self._world.tell(process.name, "dies before a request")
        if process.task is not None:
            process.kill()
        else:
            query.kill(self._world.random.uniform(0, 15))

    def _run_stage_twice(self, query: Query) -> bool:
        """Soon run the beginning stage a second time, in processes that are suspended before they initialise an id.

        The driver may also be suspended, before it looks at the transactions or after its decision.
        """
        rng, jobs = self._world.random, query.jobs
        if jobs is None:
            return True

        def run_again() -> None:
            if not jobs.driver.alive:
                return
            query.armed.append(hold)
            jobs.run_again()
            query.armed.remove(hold)

        def hold(worker: Process, _: int) -> bool:
            seconds = rng.uniform(0.05, 1.0)
            worker.before(InitProducerIdRequest.API_KEY, functools.partial(worker.freeze, seconds))
            return False

        # The first EndTxn is for the decision.
        request, skipped = rng.choice(((None, 0), (DescribeTransactionsRequest, 0), (EndTxnRequest, 1)))
        if request is not None:
            hold_seconds = rng.uniform(0.5, 3.0)
            jobs.driver.before(request.API_KEY, functools.partial(jobs.driver.freeze, hold_seconds), skip=skipped)
        self._world.after(rng.uniform(0, 0.3), run_again)
        return True

    def _freeze_to_the_end(self, worker: Process, how: float) -> bool:
        """Suspend an attempt until all work is done, before it initialises its id or adds a partition."""

        def freeze() -> None:
            if not self._is_held_beside(worker):
                worker.freeze(None)
                self._held.append(worker)

        # In the second protocol, a leader of all the partitions adds them.
        alone = self._scenario.brokers == 1 and self._cluster.transaction_version >= 2
        adds = ProduceRequest if alone else AddPartitionsToTxnRequest
        request = InitProducerIdRequest if how < 0.4 else adds
        worker.before(request.API_KEY, freeze, skip=1 if how > 0.7 else 0)
        return True

    def _is_held_beside(self, worker: Process) -> bool:
        """Return whether another attempt of the task is suspended, because Spark runs no third attempt beside two."""
        return any(one.alive and _same_task(one, worker) for one in self.held)

    def _publish_late(self, query: Query, worker: Process) -> bool:
        """Suspend an attempt until an attempt of another batch or run has published, and perhaps kill the query."""

        def freeze() -> None:
            if self._is_held_beside(worker):
                return
            worker.freeze(None)
            self._publishers[f"{GROUP_ID}-read-by-{query.name}"] = worker
            if self._world.random.random() < 0.7:
                self._world.after(0.01, functools.partial(query.kill, self._world.random.uniform(0, 5)))

        worker.before(OffsetCommitRequest.API_KEY, freeze)
        return True

    def _read_by_another(self, query: Query, how: float) -> bool:
        """When a batch begins, let another member of the query's generation read and commit a part of the batch.

        Coordinators do not check that a member of the classic protocol owns the partitions that it commits.
        """
        group = self._parts.group
        for tp, span in sorted(StreamOffset.from_json(query.checkpoint.offsets[-1]).partitions.items()):
            entry, topic_id = group.offsets.get(tp), self._cluster.topics[tp.topic].id
            is_current = entry is not None and entry.is_of(topic_id) and entry.offset == span.start
            if span.start < span.end and is_current:
                end = span.start + 1 + int(how * (span.end - span.start))
                self._world.tell("somebody", f"reads and commits {tp.topic}-{tp.partition} from {span.start} to {end}")
                output, read = self._parts.output, tuple(self._cluster.fetch(tp, span.start, end))
                output.batches["somebody", len(output.batches)] = read
                output.plan(read)
                group.commit_as_any((tp.topic, tp.partition), end)
                break
        return True


def _same_task(one: Process, other: Process) -> bool:
    a, b = one.task, other.task
    return a is not None and b is not None and (a.partition, a.properties) == (b.partition, b.properties)
