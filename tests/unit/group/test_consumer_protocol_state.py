"""The rules of a member of the consumer protocol, and members with a coordinator in random order of events."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field, replace
from typing import cast

from kafka_source.error_codes import NONE, ErrorCode
from kafka_source.group.consumer.member_state import (
    Answer,
    Heartbeat,
    IdPartition,
    Member,
    State,
    Subscription,
    answered,
    heartbeat,
    join,
    left,
    reconcile,
    unanswered,
)
from kafka_source.group.consumer.slot import ConsumerSlot
from kafka_source.group.model import GroupSettings
from kafka_source.kafka_client import KafkaClient

TOPIC = uuid.UUID(int=7)
NEW_TOPIC = uuid.UUID(int=8)
SUBSCRIPTION = Subscription(("orders",), 300_000)
FIRST, SECOND = IdPartition(TOPIC, 0), IdPartition(TOPIC, 1)


def beat(member: Member, answer: Answer) -> tuple[Heartbeat, Member]:
    sent = heartbeat(member, SUBSCRIPTION)
    return sent, answered(member, sent, answer)


def joined(*target: IdPartition, epoch: int = 3) -> Member:
    """A member that has its target and has said so."""
    _, member = beat(join(Member("a")), Answer(NONE, epoch, 500, frozenset(target)))
    _, member = beat(reconcile(member, {TOPIC}), Answer(NONE, epoch, 500))
    assert member.owned == frozenset(target)
    return member


def test_the_first_heartbeat_has_all_fields_and_no_partitions():
    sent, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    assert sent == Heartbeat(0, SUBSCRIPTION, ())
    assert (member.state, member.epoch, member.interval_ms) == (State.MEMBER, 3, 500)
    assert member.target == {FIRST}


def test_what_was_taken_is_told_at_once_and_then_left_out():
    _, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    taken = reconcile(member, {TOPIC})
    assert taken.has_news
    sent, member = beat(taken, Answer(NONE, 3))
    assert sent == Heartbeat(3, None, (FIRST,))
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, None)


def test_a_heartbeat_while_partitions_are_given_up_says_nothing_of_them():
    _, member = beat(joined(FIRST, SECOND), Answer(NONE, 3, 500, frozenset({SECOND})))
    assert member.revoking == {FIRST}
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION).owned is None
    given_up = reconcile(member, {TOPIC})
    assert given_up.has_news
    assert heartbeat(given_up, SUBSCRIPTION).owned == (SECOND,)


def test_a_member_without_partitions_says_so_in_each_heartbeat():
    member = joined()
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, ())


def test_nothing_is_told_until_the_owner_has_acted_on_a_new_target():
    _, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    # "Nothing" is still true, but not any more when the coordinator reads it.
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, None)
    assert heartbeat(reconcile(member, {TOPIC}), SUBSCRIPTION) == Heartbeat(3, None, (FIRST,))


def test_a_slot_asks_for_a_heartbeat_at_once_only_when_it_has_taken_something():
    slot = ConsumerSlot(0, cast(KafkaClient, None), GroupSettings("billing"))
    _, slot.member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    assert slot.reconcile({TOPIC: "orders"}, ())
    assert slot.wake.is_set()
    # The coordinator is away. The heartbeat is sent again after a pause, and not at once.
    slot.wake.clear()
    slot.member = unanswered(slot.member)
    assert not slot.reconcile({TOPIC: "orders"}, ())
    assert not slot.wake.is_set()


def test_all_fields_are_sent_again_after_a_heartbeat_without_an_answer():
    _, member = beat(joined(FIRST, SECOND), Answer(NONE, 3, 500, frozenset({SECOND})))
    lost = unanswered(reconcile(member, {TOPIC}))
    assert heartbeat(lost, SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (SECOND,))
    # While it still needs what is taken away, it says so.
    assert heartbeat(unanswered(member), SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (FIRST, SECOND))


def test_all_fields_are_sent_until_the_epoch_has_changed_twice_after_a_heartbeat_without_an_answer():
    _, member = beat(unanswered(joined()), Answer(NONE, 3, 500, frozenset()))
    # Now the coordinator handles the one without an answer, and gives the member a partition in an answer that is lost.
    sent, member = beat(member, Answer(NONE, 4, 500, frozenset({FIRST})))
    assert sent == Heartbeat(3, SUBSCRIPTION, ())
    # In the next epoch the coordinator still takes it.
    sent, member = beat(reconcile(member, {TOPIC}), Answer(NONE, 4))
    assert sent == Heartbeat(4, SUBSCRIPTION, (FIRST,))
    sent, member = beat(member, Answer(NONE, 5))
    assert sent == Heartbeat(4, SUBSCRIPTION, (FIRST,))
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(5, None, None)


def test_a_subscription_that_has_changed_is_sent():
    other = replace(SUBSCRIPTION, topics=("orders", "payments"))
    member = joined(FIRST)
    sent = heartbeat(member, other)
    assert sent == Heartbeat(3, other, None)
    assert answered(member, sent, Answer(NONE, 4)).subscribed == other


def test_a_fenced_member_has_nothing_and_joins_again_with_its_id():
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
        _, member = beat(joined(FIRST), Answer(code))
        assert (member.state, member.owned, member.member_id) == (State.LOST, frozenset(), "a")
        assert heartbeat(join(member), SUBSCRIPTION) == Heartbeat(0, SUBSCRIPTION, ())


def test_a_member_that_is_fenced_before_it_knows_its_epoch_leaves_and_joins_again():
    sent, member = beat(unanswered(join(Member("a"))), Answer(ErrorCode.FENCED_MEMBER_EPOCH))
    assert sent.epoch == 0
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_MEMBER_EPOCH):
        # Repeated until a coordinator has answered.
        sent, member = beat(member, Answer(code))
    assert sent.epoch == 0
    for answer in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        sent, left = beat(member, Answer(answer, -1))
        assert sent == Heartbeat(-1, None, None)
        assert (left.state, heartbeat(left, SUBSCRIPTION)) == (State.JOINING, Heartbeat(0, SUBSCRIPTION, ()))


def test_a_group_that_is_gone_is_joined_again_and_one_of_another_kind_is_not():
    _, member = beat(joined(FIRST), Answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert (member.state, member.owned) == (State.LOST, frozenset())
    _, member = beat(join(member), Answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert member.state is State.FAILED


def test_errors_that_pass_by_themselves_change_nothing_but_the_next_fields():
    member = joined(FIRST)
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ):
        _, after = beat(member, Answer(code))
        assert (after.state, after.epoch, after.owned) == (State.MEMBER, 3, member.owned)
        assert heartbeat(after, SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (FIRST,))


def test_an_instance_id_that_is_still_in_use_is_asked_for_again():
    _, member = beat(join(Member("a")), Answer(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert (member.state, member.code) == (State.JOINING, ErrorCode.UNRELEASED_INSTANCE_ID)
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(0, SUBSCRIPTION, ())


def test_any_other_error_stops_the_member():
    for code in (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ):
        _, member = beat(joined(FIRST), Answer(code))
        assert (member.state, member.code) == (State.FAILED, code)


def test_an_interval_that_is_not_positive_is_ignored():
    for interval in (0, -1):
        _, member = beat(joined(FIRST), Answer(NONE, 4, interval))
        assert member.interval_ms == 500


def test_a_topic_whose_name_is_not_known_yet_is_taken_later():
    new = IdPartition(NEW_TOPIC, 0)
    _, member = beat(joined(FIRST), Answer(NONE, 4, 500, frozenset({FIRST, new})))
    assert reconcile(member, {TOPIC}).owned == {FIRST}
    assert reconcile(member, {TOPIC, NEW_TOPIC}).owned == {FIRST, new}


def test_a_member_that_has_left_takes_nothing():
    assert reconcile(left(joined(FIRST)), {TOPIC}).owned == frozenset()


# ---- members and a coordinator

PARTITIONS = frozenset(IdPartition(TOPIC, number) for number in range(5))


@dataclass
class Known:
    """A member as the coordinator has it: CurrentAssignmentBuilder of Kafka 4."""

    epoch: int = 0
    previous: int = 0
    assigned: frozenset[IdPartition] = frozenset()
    pending: frozenset[IdPartition] = frozenset()
    """What it has to give up before its next epoch."""


@dataclass
class Coordinator:
    """The group coordinator of one group with one topic, as Kafka's GroupMetadataManager.

    Attributes:
        fences_joins: Whether epoch 0 of a member is fenced when its epoch was raised twice, as before Kafka 4.2.
    """

    fences_joins: bool = False
    epoch: int = 0
    members: dict[str, Known] = field(default_factory=dict)
    target: dict[str, frozenset[IdPartition]] = field(default_factory=dict)

    def handle(self, member_id: str, sent: Heartbeat) -> Answer:
        """The answer to a heartbeat."""
        known = self.members.get(member_id)
        if sent.epoch == -1:
            self.remove(member_id)
            return Answer(NONE if known else ErrorCode.UNKNOWN_MEMBER_ID, -1)
        if sent.epoch == 0 and not (self.fences_joins and known and known.previous):
            if known is None:
                known = self.members[member_id] = Known()
                self._assign()
            return self._answer(member_id, known, sent, full=True)
        if known is None:
            return Answer(ErrorCode.UNKNOWN_MEMBER_ID)
        # The epoch before is accepted with what was assigned since: the answer may have been lost.
        is_previous = sent.owned is not None and 0 < sent.epoch < known.epoch and set(sent.owned) <= known.assigned
        if sent.epoch != known.epoch and not is_previous:
            return Answer(ErrorCode.FENCED_MEMBER_EPOCH)
        return self._answer(member_id, known, sent, full=sent.owned is not None and sent.subscription is not None)

    def remove(self, member_id: str) -> None:
        """The member's session ends."""
        if self.members.pop(member_id, None) is not None:
            self._assign()

    def _assign(self) -> None:
        self.epoch += 1
        names = sorted(self.members)
        parts = sorted(PARTITIONS)
        self.target = {name: frozenset(parts[number :: len(names)]) for number, name in enumerate(names)}

    def _answer(self, member_id: str, known: Known, sent: Heartbeat, *, full: bool) -> Answer:
        before = known.assigned
        if not known.pending or (sent.owned is not None and not known.pending & set(sent.owned)):
            self._advance(member_id, known, sent)
        changed = full or known.assigned != before
        return Answer(NONE, known.epoch, 500, known.assigned if changed else None)

    def _advance(self, member_id: str, known: Known, sent: Heartbeat) -> None:
        wanted = self.target[member_id]
        given_up = known.assigned - wanted
        known.assigned, known.pending = known.assigned & wanted, frozenset()
        if sent.owned is None or given_up & set(sent.owned):
            known.pending = given_up
            if given_up:
                return
        taken = {p for name, one in self.members.items() if name != member_id for p in one.assigned | one.pending}
        known.assigned = wanted - taken
        if known.epoch != self.epoch:
            known.previous, known.epoch = known.epoch, self.epoch


class World:
    """Three members whose heartbeats and answers get lost, that are in batches, are removed, and join again.

    Args:
        seed: What happens is a function of it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(fences_joins=seed % 2 == 0)
        self.members = {name: join(Member(name)) for name in "abc"}
        self.in_flight: dict[str, frozenset[IdPartition]] = dict.fromkeys("abc", frozenset())
        self.late: list[tuple[str, Heartbeat]] = []
        self.not_told: set[str] = set()

    def step(self) -> None:
        """One event of one member."""
        name = self.random.choice("abc")
        event = self.random.choices(
            [self.send, self.take_and_give_up, self.plan, self.finish, self.rejoin, self.end_session, self.arrive],
            [10, 6, 2, 2, 2, 1, 2],
        )[0]
        event(name)
        self.check()

    def send(self, name: str, *, is_quiet: bool = False) -> None:
        """A heartbeat, of which the request or the answer may be lost."""
        member = self.members[name]
        if member.state not in (State.JOINING, State.MEMBER):
            return
        lost = "" if is_quiet else self.random.choice(["", "", "", "request", "answer", "late"])
        sent = heartbeat(member, SUBSCRIPTION)
        if lost == "late":
            self.late.append((name, sent))
        answer = None if lost in ("request", "late") else self.coordinator.handle(name, sent)
        self.members[name] = unanswered(member) if lost or answer is None else answered(member, sent, answer)
        if self.members[name].state is State.LOST:
            self.in_flight[name] = frozenset()

    def arrive(self, _: str) -> None:
        """The coordinator handles a request of a connection that its member has given up."""
        if self.late:
            name, sent = self.late.pop(self.random.randrange(len(self.late)))
            self.coordinator.handle(name, sent)
            # Nobody has got this answer, and only a heartbeat with all fields gets it again.
            self.not_told.add(name)

    def take_and_give_up(self, name: str) -> None:
        """What the driver does between two batches, and in a batch with slots that it does not read."""
        member = self.members[name]
        if not member.revoking & self.in_flight[name]:
            self.members[name] = reconcile(member, {TOPIC})

    def plan(self, name: str) -> None:
        """A micro-batch of some partitions that are not being taken away."""
        member = self.members[name]
        self.in_flight[name] = frozenset(sorted(member.owned - member.revoking)[: self.random.randint(1, 5)])

    def finish(self, name: str) -> None:
        """The end of the micro-batch."""
        self.in_flight[name] = frozenset()

    def rejoin(self, name: str) -> None:
        """A member that was removed joins again."""
        if self.members[name].state is State.LOST:
            self.members[name] = join(self.members[name])

    def end_session(self, name: str) -> None:
        """The coordinator removes a member, which does not know it until its next heartbeat."""
        self.coordinator.remove(name)

    def check(self) -> None:
        """No partition has two members from whom the coordinator takes commits, and none is taken from a batch."""
        taken: set[IdPartition] = set()
        for name, member in self.members.items():
            known = self.coordinator.members.get(name)
            if member.in_group and known is not None and member.epoch == known.epoch:
                assert not taken & member.owned, "a partition with two owners"
                taken |= member.owned
            assert self.in_flight[name] <= member.owned, "a partition taken away from a batch"

    def settle(self) -> None:
        """Nothing gets lost any more, after a last heartbeat of those who have not been told all."""
        for name in self.not_told:
            self.members[name] = unanswered(self.members[name])
        for _ in range(12):
            for name in self.members:
                self.finish(name)
                self.rejoin(name)
                self.send(name, is_quiet=True)
                self.take_and_give_up(name)
                self.check()


def test_each_partition_has_one_owner_whatever_gets_lost_and_has_one_in_the_end() -> None:
    for seed in range(600):
        world = World(seed)
        try:
            for _ in range(60):
                world.step()
            world.settle()
            assert sorted(one for member in world.members.values() for one in member.owned) == sorted(PARTITIONS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_an_offer_that_was_taken_back_is_acknowledged() -> None:
    _, member = beat(joined(FIRST), Answer(NONE, 4, 500, frozenset({FIRST, SECOND})))
    _, member = beat(member, Answer(NONE, 4, 500, frozenset({FIRST})))
    member = reconcile(member, {TOPIC})
    assert member.has_news
    assert heartbeat(member, SUBSCRIPTION).owned == (FIRST,)
