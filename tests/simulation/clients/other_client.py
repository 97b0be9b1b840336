"""Another application of the group, like a Java consumer: a static member that reads, writes and commits.

It commits by OffsetCommit after each lookup of records, in the generation of that lookup. When it leads the group, it
assigns by the group's strategy, and ignores everything else that our queries tell each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from assignors import (
    ClusterMetadata,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    load,
)
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.classic.generic_member import GenericMember, MemberState
from kafka_source.group.classic.member import MemberSettings
from kafka_source.group.requests import commit_offsets, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient, topic_id_of
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from tests.simulation.brokers.cluster import Cluster
from tests.simulation.clients.spark import Output
from tests.simulation.world import Died, Process, World

STRATEGIES = ("range", "roundrobin", "sticky")
"""The strategies whose members send no user data when they join, and revoke all partitions before they join."""

_LOOK_SECONDS = 0.5
_PATIENCE = 5.0
_REBALANCE_MS = 10_000
_HEARTBEAT_MS = 2_000


@dataclass
class _Reading:
    """Its reading in a generation: the next offset of each partition, and the written, uncommitted records."""

    state: MemberState
    topic_id: UUID
    positions: dict[TopicPartition, int]
    uncommitted: dict[TopicPartition, CommitOffset] = field(default_factory=dict)
    read: dict[TopicPartition, CommitOffset] = field(default_factory=dict)
    planned_at: float = 0.0


class OtherClient:
    """A client of this kind.

    Args:
        processes: The processes of all such clients, to which the client adds its own process.

    Attributes:
        process: The process in which it runs; None: it has not started yet.
        repeats_at: The times at which records may have been written that are not committed.
    """

    def __init__(
        self,
        world: World,
        name: str,
        cluster: Cluster,
        output: Output,
        member: MemberSettings,
        topic: str,
        strategy: str,
        processes: list[Process],
    ) -> None:
        self._world, self._name, self._cluster, self._output = world, name, cluster, output
        self._member, self._topic, self._strategy, self._processes = member, topic, strategy, processes
        self._settings = Settings(
            {"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": str(_REBALANCE_MS)}
        )
        self._written = 0
        # The number of partitions in its last assignment as the leader.
        self._led: int | None = None
        self.repeats_at: list[float] = []
        self.process: Process | None = None

    def start(self) -> None:
        """Start the client, as a new process with the same instance id."""
        self.process = self._world.process(self._name)
        self._processes.append(self.process)
        self._world.tell(self._name, "starts")
        self.process.start(self._main)

    def kill(self, pause: float) -> None:
        """Kill the client, and start it again after a pause."""
        if self.process is not None and self.process.alive:
            self.repeats_at.append(self._world.now)
            self.process.kill()
            self._world.after(pause, self.start)

    def freeze(self, seconds: float) -> None:
        """Suspend the client."""
        if self.process is not None and self.process.alive and not self.process.frozen:
            self.repeats_at.append(self._world.now)
            self.process.freeze(seconds)

    def _main(self) -> None:
        process, client = self.process, KafkaClient(self._settings)
        assert process is not None
        said = encode_subscription(Subscription((self._topic,)))
        try:
            with GenericMember(
                self._settings, self._member, {self._strategy: said}, self._lead, _HEARTBEAT_MS
            ) as member:
                reading = None
                while True:
                    self._world.sleep(self._world.random.uniform(0, _LOOK_SECONDS))
                    member.wait(0)
                    state = member.state
                    if state is not None and state.leading and self._led not in (None, self._partitions()):
                        # Like any leader, it watches the partitions of its topics, and has no other way to start a
                        # rebalance. A consumer that becomes the leader again after a restart does not notice an
                        # earlier change. Then its operator restarts the consumer again, as here.
                        break
                    try:
                        if state is None:
                            continue
                        if (
                            reading is None
                            or reading.state.generation != state.generation
                            or reading.topic_id != self._cluster.topics[self._topic].id
                        ):
                            if reading is not None and reading.uncommitted:
                                self.repeats_at.append(reading.planned_at)
                            reading = self._begin(client, state)
                        self._look(client, reading)
                    except FencedError:
                        # The next owner may have begun before this client commits.
                        self.repeats_at.append(self._world.now if reading is None else reading.planned_at)
                    except KafkaGroupError:
                        pass
        except Died:
            return
        except KafkaGroupError as error:
            self._world.tell(self._name, f"fails: {type(error).__name__}: {error}")
        self.repeats_at.append(self._world.now)
        process.kill()
        self._world.after(3.0, self.start)

    def _lead(self, protocol: str, said: Mapping[str, bytes]) -> Mapping[str, bytes]:
        self._led = self._partitions()
        cluster = ClusterMetadata({self._topic: self._led})
        group = {member_id: decode_subscription(metadata) for member_id, metadata in said.items()}
        plan = load(protocol).assign(cluster, group)
        given = {tp: member_id for member_id, assignment in plan.items() for tp in assignment.partitions}
        if any(given.get(tp, member_id) != member_id for member_id, one in group.items() for tp in one.owned):
            # A read that has rejoined for its sibling finishes its batch, and the new owner reads the batch, too.
            self.repeats_at.append(self._world.now)
        return {member_id: encode_assignment(assignment) for member_id, assignment in plan.items()}

    def _partitions(self) -> int:
        return len(self._cluster.topics[self._topic].partitions)

    def _begin(self, client: KafkaClient, state: MemberState) -> _Reading:
        owned = decode_assignment(state.state).partitions if state.state else ()
        topic_id = self._cluster.topics[self._topic].id
        found = client.run(fetch_entries(client, self._member.group, owned, Deadline(_PATIENCE)))
        # A Java consumer takes an offset of the deleted topic for the new topic's. Here its operator resets the offset.
        kept = {
            tp: one
            for tp, one in found.items()
            if topic_id_of(OffsetNote.parse(one.metadata).topic) in (None, topic_id)
            and self._output.of_predecessor.get((str(topic_id), tp.partition)) != one.offset
        }
        positions = {tp: self._in_log(tp, kept[tp]) if tp in kept else 0 for tp in owned}
        return _Reading(state, topic_id, positions, read={tp: one for tp, one in kept.items() if one.leader_epoch >= 0})

    def _in_log(self, tp: TopicPartition, entry: CommitOffset) -> int:
        """Return where the client continues: at most the offset from which the log differs from the client's reads."""
        log = self._cluster.log(tp)
        if entry.leader_epoch < 0:
            return min(entry.offset, self._output.durable().get(tp, 0))
        return min(entry.offset, log.end_of(entry.leader_epoch))

    def _look(self, client: KafkaClient, reading: _Reading) -> None:
        new = {}
        for tp, at in reading.positions.items():
            if (last := reading.read.get(tp)) is not None and (at := self._in_log(tp, last)) < last.offset:
                # The log was truncated. A Java consumer steps back too, and commits its new position.
                reading.read[tp] = reading.uncommitted[tp] = CommitOffset(at, self._cluster.log(tp).epoch)
            if (end := self._cluster.end(tp)) > at:
                new[tp] = at, end
        if new:
            ranges = tuple(one for tp, (start, end) in new.items() for one in self._cluster.fetch(tp, start, end))
            self._output.plan(ranges)
            reading.planned_at = self._world.now
            self._output.batches[self._name, self._written] = ranges
            self._written += 1
            reading.positions |= {tp: end for tp, (_, end) in new.items()}
            read = {tp: CommitOffset(end, self._cluster.log(tp).epoch) for tp, (_, end) in new.items()}
            reading.uncommitted |= read
            reading.read |= read
            self._world.sleep(self._world.random.uniform(0, _LOOK_SECONDS / 2))
        if reading.uncommitted and reading.topic_id == self._cluster.topics[self._topic].id:
            state, member = reading.state, self._member
            credentials = SlotCredentials(member.group, state.generation, state.member_id, member.instance_id)
            client.run(commit_offsets(client, credentials, reading.uncommitted, Deadline(_PATIENCE)))
            reading.uncommitted = {}


def settings_of(group: str, name: str, session_ms: int) -> MemberSettings:
    """Return the settings with which such a client joins."""
    return MemberSettings(group, name, session_timeout_ms=session_ms, rebalance_timeout_ms=_REBALANCE_MS)
