"""A static member whose coordinator moves during its join, with simulated coordinators."""

import pytest

from assignors import Subscription, encode_subscription
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError
from kafka_source.group.classic.member import Joined, Member, MemberSettings
from kafka_source.group.classic.member_state import State
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient
from kafka_source.kafka_client.messages.group import HeartbeatRequest
from tests.support.native import kernel

# The simulated world has the native producer.
kernel()

from tests.simulation.brokers.cluster import Cluster  # noqa: E402
from tests.simulation.brokers.group_coordinator import STABLE, GroupCoordinators  # noqa: E402
from tests.simulation.brokers.group_coordinator import Member as KnownMember  # noqa: E402
from tests.simulation.world import World  # noqa: E402

GROUP_ID, INSTANCE_ID, SESSION = "billing", "app-0", 10.0


class Rejoin:
    """A static member, "old", is in a group's log. The member's process starts again, and the coordinator moves.

    Args:
        moves: The seconds of virtual time after the first move at which the coordinator moves again.
        dies: Whether each coordinator dies, and the next coordinator answers at once; else its connections stay open.
        old_lives: Whether the previous process continues and sends heartbeats.
    """

    def __init__(self, *moves: float, dies: bool = False, old_lives: bool = False) -> None:
        self.world = World(7)
        self.cluster = Cluster(self.world, 2)
        self.groups = GroupCoordinators(self.cluster)
        self.group = self.groups.group(GROUP_ID)
        protocols = [("range", encode_subscription(Subscription(("of before",))))]
        self.group.generation, self.group.state, self.group.leader, self.group.protocol = 1, STABLE, "old", "range"
        self.group.members["old"] = KnownMember("old", INSTANCE_ID, "client", SESSION, SESSION, protocols)
        self.group._store()
        self._moves, self._dies, self._old_lives = moves, dies, old_lives

    def join(self, id_before: str | None) -> Member:
        """Return the member when it has joined; raise the error with which its join ends."""
        done: list[Member | BaseException] = []

        def main() -> None:
            client = KafkaClient(Settings({"bootstrap.servers": self.cluster.bootstrap_servers}))
            settings = MemberSettings(GROUP_ID, INSTANCE_ID, session_timeout_ms=int(SESSION * 1000))
            joining = Member(client, settings)
            joining.id_before = id_before
            protocols = [("range", encode_subscription(Subscription(("orders",))))]
            try:
                client.run(joining.join(protocols, self._lead, Deadline(100)), 101)
                done.append(joining)
            except Exception as error:
                done.append(error)

        with self.world.installed():
            self.world.process("client").start(main)
            self.world.run(1e9, done=lambda: bool(done))
        if isinstance(done[0], BaseException):
            raise done[0]
        return done[0]

    async def _lead(self, joined: Joined) -> dict[str, bytes]:
        if joined.generation == 2 and self.cluster.requests["SyncGroup"] == 0:
            # The new id is in no log yet.
            self._move()
            for seconds in self._moves:
                self.world.after(seconds, self._move)
            if self._old_lives:
                self._heartbeat()
        return {joined.member_id: b"given"}

    def _move(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.up = True
        before = self.cluster.brokers[self.cluster.coordinator(GROUP, GROUP_ID)]
        self.cluster.move_coordinator(GROUP, GROUP_ID)
        if self._dies:
            before.up = False
            for link in list(before.links):
                link.cut()
            self.cluster._loading.clear()

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(GROUP_ID, self.group.generation, "old", INSTANCE_ID)
        if not self.group.heartbeat(request):
            self.world.after(1.0, self._heartbeat)


@pytest.mark.parametrize("moves", [(), (0.0,), (0.0, 0.0)])
def test_a_member_joins_again_at_once_that_knows_its_id_of_before(moves: tuple[float, ...]) -> None:
    rejoin = Rejoin(*moves)
    member = rejoin.join("old")
    assert (member.status.state, member.status.member_id) == (State.STABLE, rejoin.group.leader)
    assert rejoin.world.now < SESSION


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("moves", [(), (0.6 * SESSION,), (0.6 * SESSION, 1.2 * SESSION)])
def test_a_member_waits_for_a_holder_whose_session_begins_anew_with_each_move(
    moves: tuple[float, ...], dies: bool
) -> None:
    rejoin = Rejoin(*moves, dies=dies)
    member = rejoin.join(None)
    assert (member.status.state, member.status.member_id) == (State.STABLE, rejoin.group.leader)
    assert rejoin.world.now > (moves or (0.0,))[-1] + SESSION


def test_a_member_stops_whose_instance_id_belongs_to_a_process_that_lives() -> None:
    rejoin = Rejoin(old_lives=True)
    with pytest.raises(FencedError, match="Another process has joined"):
        rejoin.join(None)
    assert SESSION < rejoin.world.now < 1.5 * SESSION
    assert list(rejoin.group.members) == ["old"]
