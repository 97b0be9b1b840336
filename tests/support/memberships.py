"""What tests of groups need: memberships to make, and what they hold."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

from assignors import Assignor, TopicPartition, load
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.commits.rights import SlotSession
from kafka_source.errors import KafkaGroupError
from kafka_source.group.classic.member import Member, MemberSettings
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.model import GroupSettings, Topics
from kafka_source.group.siblings import Siblings
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

T = TypeVar("T")


def attach(config: Settings, credentials: SlotCredentials) -> SlotSession:
    """Act as a slot for which the driver sends heartbeats; raise the error of its own heartbeat."""
    (outcome,) = SlotSession.attach_all(config, [credentials]).result(31)
    if isinstance(outcome, KafkaGroupError):
        raise outcome
    return outcome


class Memberships:
    """Makes memberships of one group, and closes them at the end."""

    def __init__(self, config: Settings, group: str) -> None:
        self.config = config
        self.group = group
        self._made: list[ClassicMembership] = []

    def settings(self, **more: Any) -> GroupSettings:
        """Quick ones; `app` names the static members."""
        app = more.pop("app", "app")
        prefix = None if app is None else f"{self.group}-{app}"
        quick: dict[str, Any] = {
            "instance_id_prefix": prefix,
            "slots": 3,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 300,
            # As streams have it.
            "rewinds": True,
        }
        return GroupSettings(self.group, **{**quick, "rebalance_batch_ms": 300, **more})

    def make(
        self,
        *topics: str,
        pattern: str | None = None,
        strategies: Iterable[str | Assignor] = ("range",),
        config: Settings | None = None,
        siblings: Siblings | None = None,
        **more: object,
    ) -> ClassicMembership:
        """A membership that has not joined yet."""
        assignors = [load(s) if isinstance(s, str) else s for s in strategies]
        made = ClassicMembership(
            config or self.config,
            self.settings(**more),
            Topics(topics, pattern),
            assignors,
            siblings,
            end_offsets=end_offsets,
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        """Closes all."""
        for membership in self._made:
            membership.close()


def held(*memberships: ClassicMembership | ConsumerMembership) -> list[TopicPartition]:
    """All partitions that these hold, sorted, copies too."""
    return sorted(tp for m in memberships for slot in m.assignment.slots for tp in slot.partitions)


def everything(topic: str, partitions: int) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, n) for n in range(partitions)]


def rejoin_until_joined(membership: ClassicMembership, joining: Future[Any]) -> None:
    """Rejoin whenever a rebalance needs it, as a query does in each trigger, until another membership has joined.

    Its slots may join in several rebalances.
    """

    def joined() -> bool:
        if not joining.done() and membership.rebalance_needed() is not None:
            membership.rejoin(30)
        return joining.done()

    wait_until(joined, "the other membership")
    joining.result()


def rejoin_once(membership: ClassicMembership) -> None:
    """Rejoin in the next rebalance."""
    wait_until(membership.rebalance_needed, "a rebalance")
    membership.rejoin(30)


def together(*work: Callable[[], object], seconds: float = 60) -> list[object]:
    """Results of calls made at the same time."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(seconds) for future in [pool.submit(call) for call in work]]


def leave(config: Settings, credentials: SlotCredentials) -> None:
    """Let a slot leave its group, on a client of its own: whoever holds it learns it from the coordinator."""
    with closing(KafkaClient(config)) as client:
        membership = MemberStatus(State.STABLE, credentials.member_id, credentials.generation)
        member = Member(client, MemberSettings(credentials.group, credentials.instance_id), membership)
        client.run(member.leave(Deadline(10)), 11)


def members_of(kafka: EmbeddedKafka, group: str) -> list[str | None]:
    """The instance ids of a group's members as the broker knows them."""
    admin = kafka.admin()
    described = admin.describe_consumer_groups([group])[group].result(timeout=10)
    return sorted((member.group_instance_id for member in described.members), key=str)
