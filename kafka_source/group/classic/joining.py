"""Bring all slots into one generation: the rounds of a join, refused members, outdated assignments.

One join takes several rounds in four cases: a strategy moves partitions in two steps (KIP-429); a program rewinds the
group; the group's leader refuses a member; static members get an outdated assignment after a restart.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from assignors import (
    Assignment,
    AssignmentError,
    ClusterMetadata,
    Subscription,
    TopicPartition,
    WireFormatError,
    decode_assignment,
)
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AssignmentFailed, KafkaGroupError, RetriableError
from kafka_source.group.classic import leader, strategies
from kafka_source.group.classic.background import Heartbeats
from kafka_source.group.classic.balance import BalanceWatch
from kafka_source.group.classic.leader import without_held
from kafka_source.group.classic.member import Joined, RebalanceTimeout
from kafka_source.group.classic.member_state import State
from kafka_source.group.classic.slot import Slot
from kafka_source.group.model import GroupAssignment, GroupSettings
from kafka_source.group.rebalance_log import OtherMembers, Reason, log_progress
from kafka_source.group.requests import (
    DEAD,
    REBALANCING,
    STABLE,
    DescribedMember,
    describe,
    describe_consumer_protocol,
    if_allowed,
)
from kafka_source.group.siblings import Siblings
from kafka_source.group.topics import SubscribedTopics
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot
from kafka_source.model.driver_figures import RebalanceCause
from kafka_source.model.partition_runs import format_partitions

log = logging.getLogger(__name__)

# The maximum number of rounds of JoinGroup and SyncGroup in one join; rounds during a rewind do not count.
_MAX_ROUNDS = 10
_CLOSE_SECONDS = 5.0
# Seconds between the JoinGroup of a slot that leads and the JoinGroup of the other slots.
_LEADERS_HEAD_START = 0.02
# Seconds between the heartbeats of a slot that waits for the query's other slots. The maximum grows with the number of
# slots, because all heartbeats share one connection.
_FIRST_POLL = 0.05
_MAX_POLL = 0.25
_POLL_PER_SLOT = 0.004
# Seconds for which a returning member waits for the rebalance that assigns partitions without an owner.
_HANDOVER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """The result of a join.

    Attributes:
        assignment: The assignment of the slots in the last round.
        cause: The reason for the join, or for a later round.
    """

    assignment: GroupAssignment
    cause: Reason


class JoinRounds:
    """Joins with all slots of a query, on the event loop of the membership.

    Args:
        client: The members' client.
        settings: The group id, the slots and the timeouts.
        slots: The slots of the query.
        topics: The topics to which the slots subscribe.
        heartbeats: Notified when a rebalance no longer waits for the slots.
        balance: Looks up the work for the leader, and gets the leader's assignment.
        siblings: Notified while the slots wait in a join; None: there are no other reads.
        in_flight: Returns the partitions of the batch in flight, which the slots claim.
        leave: Removes all slots from the group; its arguments are the reason and the deadline.
    """

    def __init__(
        self,
        client: KafkaClient,
        settings: GroupSettings,
        slots: Sequence[Slot],
        *,
        topics: SubscribedTopics,
        heartbeats: Heartbeats,
        balance: BalanceWatch,
        siblings: Siblings | None,
        in_flight: Callable[[], Collection[TopicPartition]],
        leave: Callable[[str, Deadline], Awaitable[None]],
    ) -> None:
        self._client, self._settings, self._slots = client, settings, slots
        self._topics, self._heartbeats, self._balance = topics, heartbeats, balance
        self._others, self._siblings = OtherMembers(client, settings), siblings
        self._in_flight, self._leave = in_flight, leave
        self._led_generation = -1
        # The claims that this query's plans have kept, by generation.
        self._kept: dict[int, leader.Claims] = {}
        # Whether the group has a leader that does not know that it leads; see `_why_stale`.
        self._leader_unaware = False

    @property
    def watches_as_leader(self) -> bool:
        """Whether this query watches the topics: a slot leads the group, or the leader does not know of its role."""
        return self._leader_unaware or any(slot.leading for slot in self._slots)

    async def open_siblings(self) -> None:
        """Let the other reads of this driver find this read; log a warning if this fails."""
        if self._siblings is None:
            return
        try:
            await self._siblings.open()
        except OSError as error:
            log.warning("group=%s: other reads of this driver cannot find this one: %s", self._settings.group, error)
            self._siblings = None

    async def look_at_group(self, topics: Collection[str], timeout_s: float) -> None:
        """Before the first join, log the group's members, and record the member ids that the group has for the slots.

        Args:
            topics: The topics of the subscription; empty with a pattern.
            timeout_s: The longest time that the join may take.
        """
        await self.open_siblings()
        described = await self._others.look_up(topics, timeout_s=timeout_s)
        for slot in self._slots:
            slot.member.remember_member_id(described)

    async def join(self, reason: Reason, deadline: Deadline, *, fresh: bool) -> JoinedGroup:
        """Join or rejoin in as many rounds as needed, and return the slots' assignment.

        Args:
            reason: Why the slots join.
            deadline: The time limit for all rounds.
            fresh: Whether this is the first join of the query. Static members that return within their session get
                their assignment back without a rebalance, although the assignment may be outdated.
        """
        async with self._announce_join():
            cause = reason
            rounds = 0
            while rounds < _MAX_ROUNDS:
                topics = await self._topics.look_up(deadline)
                moved = await self._try_round(topics, reason.text, deadline)
                if are_rewinding(self._slots):
                    reason = cause = self._log_rewind()
                    await self._wait_for_next_generation(deadline)
                    continue
                rounds += 1
                raise_failed_assignment(self._settings.group, self._slots)
                if moved:
                    # Cooperative rebalancing (KIP-429): the leader assigns revoked partitions to their new owners only
                    # after the previous owners have rejoined without them.
                    reason = Reason(reason.cause, "partitions were revoked")
                    continue
                again = await self._reason_to_join_again(topics, deadline) if fresh else None
                if again is None:
                    break
                fresh = False
                reason = cause = again
                if not any(slot.leading or slot.hands_over for slot in self._slots):
                    # The coordinator starts no rebalance if a follower rejoins with unchanged metadata, so leave first.
                    # With cooperative assignors do not leave, because the metadata have changed with the generation,
                    # and the next round may assign a partition without an owner to this query.
                    await self._leave(again.text, deadline)
            if self._others.unclear:
                await self._others.look_up(topics, member_ids(self._slots))
            return JoinedGroup(assignment_of(self._slots), cause)

    @contextlib.asynccontextmanager
    async def _announce_join(self) -> AsyncIterator[None]:
        """Notify siblings and log that this query waits in a join."""
        progress = asyncio.ensure_future(log_progress(self._client, self._settings))
        try:
            if self._siblings is None:
                yield
            else:
                async with self._siblings.waiting():
                    yield
        finally:
            progress.cancel()

    # ---- one round

    async def _try_round(self, topics: Sequence[str], reason: str, deadline: Deadline) -> bool:
        """Join as `_join_round` does; retry during a rewind of the group. Raise any other refusal with its reason."""
        # During a rewind the group refuses the usual strategies. The rewind may end before the group is described.
        may_have_ended = True
        while True:
            try:
                return await self._join_round(topics, reason, deadline)
            except KafkaGroupError as error:
                may_be_rewind = error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and not deadline.over
                is_rewound = may_be_rewind and await self._is_being_rewound(deadline)
                if not is_rewound and not (may_be_rewind and may_have_ended):
                    problem = await strategies.refusal_of_other_kind(self._client, self._settings.group, error.code)
                    raise problem or error from error
                may_have_ended = is_rewound
            await asyncio.sleep(_MAX_POLL)

    async def _is_being_rewound(self, deadline: Deadline) -> bool:
        with contextlib.suppress(KafkaGroupError):
            return await strategies.is_being_rewound(self._client, self._settings.group, deadline)
        return False

    async def _join_round(self, topics: Sequence[str], reason: str, deadline: Deadline) -> bool:
        """Bring all slots into one generation; return whether another round must follow."""
        # Find the coordinator once before the slots join. If each slot looked the coordinator up, the slots would join
        # at different times, and each slot would cause a rebalance.
        patience = min(deadline.left, self._settings.coordinator_timeout_ms / 1000)
        await self._client.coordinator(self._settings.group, Deadline(patience))
        self._topics.changed = None
        self._heartbeats.note_rejoin()
        self._balance.reason = None
        self._leader_unaware = False
        settled = asyncio.Event()
        lead_first = [slot for slot in self._slots if slot.leading] + [slot for slot in self._slots if not slot.leading]
        tasks = []
        try:
            for index, slot in enumerate(lead_first):
                tasks.append(asyncio.ensure_future(self._join_slot(slot, topics, settled, reason, deadline)))
                if index == 0 and slot.leading:
                    # A leader that rejoins starts a rebalance; followers that rejoin earlier get the old generation.
                    await asyncio.sleep(_LEADERS_HEAD_START)
            return any(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _join_slot(
        self, slot: Slot, topics: Sequence[str], settled: asyncio.Event, reason: str, deadline: Deadline
    ) -> bool:
        async def lead(joined: Joined) -> Mapping[str, bytes]:
            return await self._lead(slot, joined, deadline)

        moved = False
        while True:
            in_flight = self._in_flight()
            state = await slot.member.join(slot.subscribe(topics, in_flight), lead, deadline, reason)
            if not slot.member.last_join.leader:
                raise await self._refusal_of_converted_group(deadline)
            if not strategies.is_rewind(slot.member.last_join.protocol):
                moved |= slot.store_assignment(state, in_flight)
            if all(s.member.status.state is State.STABLE for s in self._slots) and one_generation(self._slots):
                settled.set()
            pause = _FIRST_POLL
            while not settled.is_set():
                # Other slots of this query may have started another rebalance, which waits for this slot to rejoin. The
                # response to the slot's heartbeat shows the rebalance. Send heartbeats at growing intervals.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(settled.wait(), pause)
                    break
                with contextlib.suppress(RetriableError):
                    await slot.member.heartbeat(deadline)
                if slot.member.status.state is not State.STABLE:
                    break
                pause = self._longer(pause)
            if settled.is_set():
                return moved

    def _longer(self, pause: float) -> float:
        return min(pause * 2, _MAX_POLL + _POLL_PER_SLOT * len(self._slots))

    async def _lead(self, slot: Slot, joined: Joined, deadline: Deadline) -> Mapping[str, bytes]:
        if strategies.is_rewind(joined.protocol):
            return strategies.lead(joined.members)
        strategy, group = slot.assignor(joined.protocol), self._settings.group
        # In the generations after `assigned_in`, the next rebalance began before a leader had sent an assignment.
        since = joined.generation - 1 if slot.assigned_in is None else min(slot.assigned_in, joined.generation - 1)
        self._kept = {generation: claims for generation, claims in self._kept.items() if generation >= since}
        kept, work = self._kept.get(since, {}), self._balance.work_lookup
        led = await leader.lead(self._client, group, strategy, joined, deadline, since, kept, work)
        self._kept[joined.generation] = led.claims
        self._balance.record_assignment(strategy, led, joined.generation)
        self._topics.record_assignment(led.topics, led.snapshot)
        self._led_generation = joined.generation
        return led.states

    # ---- refusals

    async def _refusal_of_converted_group(self, deadline: Deadline) -> KafkaGroupError:
        """Leave a group whose partitions the brokers assign, and return the error that names its other members."""
        try:
            found = await describe_consumer_protocol(self._client, self._settings.group, deadline)
            ours = member_ids(self._slots)
            others = [] if found is None else [m for m in found.members if m.member_id not in ours]
        except KafkaGroupError as error:
            # For example the user lacks the right to describe the group.
            log.info("describe group=%s: %s", self._settings.group, error)
            others = []
        try:
            await self._leave("the brokers assign the partitions of the group", Deadline(_CLOSE_SECONDS))
        except KafkaGroupError as error:
            log.warning("leave group=%s failed: slots stay until their sessions end: %s", self._settings.group, error)
        names = [f"{m.instance_id or m.member_id} ({m.client_id} at {m.client_host})" for m in others]
        return strategies.refusal_of_converted_group(self._settings.group, names)

    def _log_rewind(self) -> Reason:
        """Log that the group is rewound, and return the reason for the next generation."""
        log.warning(
            "rewind group=%s generation=%d: the group's offsets are being set, no member reads until they are set",
            self._settings.group,
            max(slot.generation for slot in self._slots),
        )
        return Reason(RebalanceCause.REWIND, "the group was rewound")

    async def _wait_for_next_generation(self, deadline: Deadline) -> None:
        # The generation ends when the member that rewinds the group leaves, or when its session ends.
        await self._wait_for_rebalance(deadline)
        if deadline.over:
            raise RebalanceTimeout(
                f"Group {self._settings.group} is being rewound for {deadline.seconds:.0f} s already: the member that "
                "rewinds it has not left yet."
            )

    async def _wait_for_rebalance(self, deadline: Deadline) -> None:
        pause = _FIRST_POLL
        while all(slot.member.status.state is State.STABLE for slot in self._slots) and not deadline.over:
            for slot in self._slots:
                with contextlib.suppress(RetriableError):
                    await slot.member.heartbeat(deadline)
            await asyncio.sleep(min(pause, deadline.left))
            pause = self._longer(pause)

    # ---- does the assignment match?

    async def _reason_to_join_again(self, topics: Sequence[str], deadline: Deadline) -> Reason | None:
        """Return the reason why the first join's assignment is incomplete or outdated; None: it is neither."""
        group_id = self._settings.group
        described = await if_allowed(describe(self._client, group_id, deadline), group_id)
        if described is None:
            return None
        if described.state != DEAD:
            # Members that joined together with this query were not in the first description.
            self._others.log_members(described.members, topics, member_ids(self._slots))
        hands_over = any(slot.hands_over for slot in self._slots)
        if hands_over and described.state in REBALANCING:
            return Reason(RebalanceCause.START, "partitions are handed over")
        has_led = self._led_generation == self._slots[0].generation
        if described.state != STABLE or (has_led and not hands_over):
            return None
        try:
            group = leader.subscriptions(d.member for d in described.members)
            held = {d.member.member_id: _with_held(decode_assignment(d.state)) for d in described.members}
        except (AssignmentError, WireFormatError):
            # An assignment by another client's leader may have a format of its own, which cannot be checked here.
            return None
        snapshot = await self._client.metadata(frozenset(leader.topics_of(group)), deadline)
        stale = None if has_led else self._why_stale(topics, described.members, group, held, snapshot)
        if stale is not None:
            return Reason(RebalanceCause.STALE, stale)
        unowned = unowned_partitions(snapshot.for_assignor(frozenset(topics)), held.values()) if hands_over else []
        if not unowned:
            return None
        # A member that releases partitions rejoins in a second phase. If such a member died and returns within its
        # session, its assignment lacks these partitions, so this query requests the second phase.
        await self._wait_for_rebalance(Deadline(_HANDOVER_SECONDS))
        return Reason(RebalanceCause.START, f"{format_partitions(unowned)} is assigned to no member")

    def _why_stale(
        self,
        topics: Sequence[str],
        members: Sequence[DescribedMember],
        group: Mapping[str, Subscription],
        held: Mapping[str, Assignment],
        snapshot: Snapshot,
    ) -> str | None:
        """Return why the assignment that the slots got back after a restart does not match, or None if it matches."""
        # Before Kafka 3.2 (JoinGroup 9) a returning static leader gets its former id as the leader's id, and does not
        # know that it leads. So if no member has the leader's id, members watch the topics: one of them is the leader,
        # and its rejoin starts a rebalance. All slots' responses count, because later responses have the new id.
        named = {slot.member.last_join.leader for slot in self._slots}
        self._leader_unaware = not named <= {d.member.member_id for d in members}
        if self.watches_as_leader:
            wanted = frozenset(leader.topics_of(group))
            self._topics.record_assignment(wanted, snapshot)
            return leader.stale(snapshot.for_assignor(wanted), group, held)
        own = [tp for slot in self._slots for tp in slot.assignment.partitions]
        return stale_of_follower(topics, own, held.values(), snapshot.topics)


# ---- the rules


def member_ids(slots: Sequence[Slot]) -> set[str]:
    """Return the slots' ids in the group."""
    return {slot.member.status.member_id for slot in slots}


def are_rewinding(slots: Sequence[Slot]) -> bool:
    """Return whether the slots are in the generation of a rewind."""
    return any(strategies.is_rewind(slot.member.last_join.protocol) for slot in slots)


def one_generation(slots: Sequence[Slot]) -> bool:
    """Return whether all slots are in one generation."""
    return len({slot.generation for slot in slots}) <= 1


def raise_failed_assignment(group: str, slots: Sequence[Slot]) -> None:
    """Raise AssignmentFailed if the group's leader has reported that it could not assign partitions."""
    for slot in slots:
        reason = leader.failure_reason(slot.assignment)
        if reason is not None:
            raise AssignmentFailed(f"The leader of group {group} could not assign partitions: {reason}.")


def assignment_of(slots: Sequence[Slot]) -> GroupAssignment:
    """Return the assignment of slots that have joined one generation."""
    joined = [slot.member.last_join for slot in slots]
    return GroupAssignment(
        generation=max(one.generation for one in joined),
        assignor=joined[0].protocol,
        leading=any(slot.leading for slot in slots),
        slots=tuple(slot.slot_assignment() for slot in slots),
    )


def stale_of_follower(
    topics: Collection[str],
    own: Collection[TopicPartition],
    assignments: Collection[Assignment],
    existing: Collection[str],
) -> str | None:
    """Return why an assignment that another application has made does not match this query; None if it matches.

    The leader watches the topics of the members' subscriptions. The leader does not know the query's changed
    subscription, because the query returned without a rebalance.

    Args:
        topics: The topics of the query's current subscription.
        own: The partitions that the query's slots have got back.
        assignments: The assignments of all members of the group.
        existing: The topics that exist.
    """
    ours = frozenset(topics)
    if given := sorted({tp.topic for tp in own} - ours):
        return f"topic {given[0]} is no longer subscribed to"
    assigned = {tp.topic for assignment in assignments for tp in assignment.partitions}
    unknown = sorted(name for name in ours - assigned if name in existing)
    return f"topic {unknown[0]} is assigned to no member" if unknown else None


def unowned_partitions(cluster: ClusterMetadata, assignments: Collection[Assignment]) -> list[TopicPartition]:
    """Return the partitions of a cluster's topics that are in none of the assignments, sorted."""
    owned = {tp for assignment in assignments for tp in assignment.partitions}
    every = (TopicPartition(topic, number) for topic, count in cluster.partitions.items() for number in range(count))
    return sorted(tp for tp in every if tp not in owned)


def _with_held(assignment: Assignment) -> Assignment:
    """Return an assignment with the partitions that are held for the member, which no other member may have."""
    own, held = without_held(assignment)
    return Assignment((*own.partitions, *held), own.user_data)
