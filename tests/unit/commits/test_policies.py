"""Commit policies: which one a read has, and what each of them does with a membership that records."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.commits import as_members
from kafka_source.commits import offsets as kept_offsets
from kafka_source.commits.by_driver import ByDriver
from kafka_source.commits.by_program import ByProgram
from kafka_source.commits.by_sink import BySink
from kafka_source.commits.by_tasks import ByTasks, renewal_of
from kafka_source.commits.choose import Caller, policy_of
from kafka_source.commits.policy import CommitPolicy
from kafka_source.commits.rights import SlotSession
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnknownTopicError,
)
from kafka_source.group.model import (
    BatchInFlight,
    GroupAssignment,
    OwnedPartitions,
    SlotAssignment,
    group_settings,
    subscription_of,
)
from kafka_source.model.commits import CommitOffset, OffsetNote, rewinds_in
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance
from kafka_source.model.stream_offset import PlannedInput, Range, Span, StreamOffset
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.source import group_member_owner
from kafka_source.source.group_member_owner import GroupMemberOwner
from kafka_source.source.positions import Positions
from kafka_source.source.read_task import ReadTask

A, B, C = (TopicPartition("t", number) for number in range(3))
MEMBER = SlotCredentials("g", 3, "member", "instance", 0, (A, B))
POLICIES = (ByDriver, ByTasks, BySink, ByProgram)


def options_of(where: Where = Where.STREAM, **more: str) -> ReadOptions:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.group.id": "g",
        "commit.transactional": "false",
        "strict": "false",
    }
    topics = {} if "assign" in more else {"subscribe": "t"}
    return read_options({**given, **topics, **{name.replace("_", "."): value for name, value in more.items()}}, where)


@pytest.mark.parametrize(
    ("caller", "more", "policy"),
    [
        (Caller.STREAM, {}, ByDriver),
        (Caller.STREAM, {"commit": "batch"}, ByDriver),
        (Caller.STREAM, {"assign": '{"t":[0]}'}, ByDriver),
        (Caller.STREAM, {"commit": "task"}, ByTasks),
        (Caller.STREAM, {"commit": "sink"}, BySink),
        (Caller.STREAM, {"group_membership": "false"}, CommitPolicy),
        (Caller.PROGRAM, {}, ByProgram),
        (Caller.BLOCK, {}, ByDriver),
        (Caller.BATCH, {}, CommitPolicy),
        (Caller.BATCH, {"commit": "none"}, CommitPolicy),
        (Caller.BATCH, {"commit": "task"}, ByTasks),
    ],
)
def test_a_read_has_one_policy(caller: Caller, more: dict[str, str], policy: type[CommitPolicy]) -> None:
    where = Where.BATCH if caller in (Caller.BATCH, Caller.BLOCK) else Where.STREAM
    assert type(policy_of(options_of(where, **more), caller)) is policy


class Membership:
    """A membership that records; it has both partitions, until the group gives one away."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommitOffset] = {}
        self.batches: list[BatchInFlight] = []
        self.rebalance: str | None = None
        self.problem: KafkaGroupError | None = None
        self.deleted: str | None = None
        self.clock, self.suspended = 0.0, 0.0
        self.owns(MEMBER, MEMBER.partitions)

    def owns(self, member: SlotCredentials, partitions: tuple[TopicPartition, ...]) -> None:
        slots = (SlotAssignment(member, partitions),)
        self.assignment = GroupAssignment(member.generation, "range", leading=True, slots=slots)

    @property
    def credentials(self) -> tuple[SlotCredentials, ...]:
        return tuple(slot.credentials for slot in self.assignment.slots)

    def join(self, _: float) -> None: ...

    def rejoin(self, _: float) -> None:
        self.owns(replace(MEMBER, generation=4), (A,))
        self.rebalance = self.problem = None

    def rebalance_paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def lost(self) -> None: ...

    def ask(self) -> None: ...

    def rebalance_needed(self) -> str | None:
        return self.rebalance

    def record_throughput(self, *_: object) -> None: ...

    def set_batch_in_flight(self, batch: BatchInFlight) -> None:
        self.batches.append(batch)

    def committed_entries(
        self, partitions: Sequence[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, CommitOffset]:
        return {tp: self.committed[tp] for tp in partitions if tp in self.committed}

    def commit(self, by_slot: Mapping[int, Mapping[TopicPartition, CommitOffset]], *, has_looked: bool) -> None:
        self.clock, self.suspended = self.clock + self.suspended, 0.0
        if self.problem is not None:
            raise self.problem
        for part in by_slot.values():
            if self.deleted in {tp.topic for tp in part}:
                raise UnknownTopicError("a topic is gone")
            self.committed |= part

    def ask_for_newer_credentials(self, _: object) -> bool:
        return False

    def take_rebalances(self) -> tuple[Rebalance, ...]:
        return ()

    def close(self) -> None: ...


@pytest.fixture
def membership(monkeypatch: pytest.MonkeyPatch) -> Membership:
    made = Membership()
    monkeypatch.setattr(group_member_owner, "_membership_of", lambda *_: made)
    return made


def owner_of(policy: type[CommitPolicy], stream: str = "me", **more: str) -> GroupMemberOwner:
    options = options_of(Where.STREAM, **more)
    positions = Positions()
    positions.learn(StreamOffset(stream=stream))
    settings = group_settings(options, partitions=2, stream=True)
    return GroupMemberOwner(options, policy(options), subscription_of(options), settings, positions=positions)


def offsets(membership: Membership) -> dict[TopicPartition, int]:
    return {tp: entry.offset for tp, entry in membership.committed.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_only_the_driver_commits_before_a_plan(membership: Membership, policy: type[CommitPolicy]) -> None:
    owner = owner_of(policy)
    assert owner.rejoin_if_due().slots == {A: 0, B: 0}
    owner.commit({A: 5, B: 7})
    owner.commit({A: 6, B: 7})
    assert offsets(membership) == ({A: 6, B: 7} if policy is ByDriver else {})


def test_the_driver_commits_before_it_gives_partitions_away(membership: Membership) -> None:
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    membership.rebalance = "a member has joined"
    owner.commit({A: 5, B: 7})
    assert owner.rejoin_if_due().slots == {A: 0}
    assert offsets(membership) == {A: 5, B: 7}
    # It commits nothing for the next owner.
    owner.commit({A: 6, B: 9})
    assert offsets(membership) == {A: 6, B: 7}


def test_a_failed_commit_is_repeated_before_a_rebalance_that_becomes_due_later(membership: Membership) -> None:
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    membership.problem = RetriableError("the coordinator is loading the group")
    owner.commit({A: 5, B: 7})
    membership.problem, membership.rebalance = None, "a member has joined"
    assert owner.rejoin_if_due().slots == {A: 0}
    assert offsets(membership) == {A: 5, B: 7}


@pytest.mark.parametrize("policy", (*POLICIES, CommitPolicy))
def test_starts_and_rewinds_are_committed_where_the_groups_offsets_are_kept(
    membership: Membership, policy: type[CommitPolicy]
) -> None:
    owner = owner_of(policy)
    owner.rejoin_if_due()
    owner.offsets.remember({A: 5, B: 7})
    owner.offsets.rewind({A: 3, B: 9})
    assert offsets(membership) == ({A: 3, B: 7} if policy(options_of()).keeps else {})


@pytest.mark.parametrize(
    ("policy", "more", "in_credentials", "renewed"),
    [
        (ByDriver, {}, False, False),
        (ByProgram, {}, False, False),
        (ByTasks, {}, True, True),
        # Its id is in the notes of commits nevertheless, by which a batch's keeper knows them.
        (ByTasks, {"group_on_lost": "stop"}, True, False),
        (BySink, {}, True, True),
        (BySink, {"group_on_lost": "stop"}, False, False),
        (BySink, {"group_on_lost": "stop", "kafka_group_protocol": "consumer"}, True, True),
    ],
)
def test_slots_rejoin_inside_a_batch_only_as_its_right_allows(
    membership: Membership, policy: type[CommitPolicy], more: dict[str, str], in_credentials: bool, renewed: bool
) -> None:
    owner = owner_of(policy, **more)
    owner.rejoin_if_due()
    owner.batch_planned({A: 0}, {A: 5}, {A: 5})
    assert membership.batches[-1] == BatchInFlight({A: 5})
    owner.tasks_made({A: 5})
    batch, given = membership.batches[-1], owner.credentials(0)
    assert (batch.right is not None) == (policy in (ByTasks, BySink))
    assert (given.right is not None) == in_credentials
    assert (batch.renewed is not None) == renewed
    assert batch.renewed is None or batch.right == policy_right(owner, given)


def policy_right(owner: GroupMemberOwner, given: SlotCredentials) -> object:
    right = owner._right
    assert right is not None
    assert right.id == given.right
    assert right.waits
    return right


def test_a_commit_that_fails_is_tried_again_with_the_next_batch(membership: Membership) -> None:
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    owner.batch_planned({A: 0}, {A: 5}, {A: 5})
    membership.problem = RetriableError("the coordinator is away")
    owner.commit({A: 5})
    # Until then the slots claim its partitions.
    assert membership.batches[-1] == BatchInFlight({A: 5})
    membership.problem = None
    owner.batch_planned({A: 5}, {A: 6}, {A: 6})
    owner.commit({A: 6})
    assert offsets(membership) == {A: 6}
    assert membership.batches[-1] == BatchInFlight()
    events = owner.take_events()
    assert (len(events.commits), events.failed_commits) == (1, 1)


def test_a_deleted_topic_is_left_out_of_a_commit(membership: Membership) -> None:
    gone = TopicPartition("gone", 0)
    membership.owns(MEMBER, (A, gone))
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    membership.deleted = "gone"
    owner.commit({A: 5, gone: 7})
    assert offsets(membership) == {A: 5}


def test_members_that_the_group_has_replaced_commit_nothing_and_join_again(membership: Membership) -> None:
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    membership.problem = FencedError("another generation", code=ErrorCode.ILLEGAL_GENERATION)
    owner.commit({A: 5, B: 7})
    assert owner.rejoin_if_due().slots == {A: 0}
    assert offsets(membership) == {}


def test_a_query_that_stops_when_it_is_lost_does_not_join_again(membership: Membership) -> None:
    owner = owner_of(ByDriver, group_on_lost="stop")
    owner.rejoin_if_due()
    membership.problem = FencedError("another generation", code=ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(FencedError, match=r"group\.on\.lost is stop"):
        owner.commit({A: 5})


def test_the_group_is_not_set_back_after_a_rebalance(membership: Membership) -> None:
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    # Another application has read on in A, and the group was rewound in B, before this query's first commit.
    rewound = OffsetNote(rewound="mark").metadata
    membership.committed |= {A: CommitOffset(9), B: CommitOffset(1, metadata=rewound)}
    owner.commit({A: 5, B: 7})
    assert offsets(membership) == {A: 9, B: 1}


def test_a_commit_of_a_task_that_comes_late_is_repaired(membership: Membership) -> None:
    owner = owner_of(ByTasks)
    owner.rejoin_if_due()
    # Tasks have committed both batches; an attempt of the first one outlives its job.
    late = {A: CommitOffset(5, metadata="me")}
    for offset in (5, 9):
        membership.committed |= {A: CommitOffset(offset, metadata="me")}
        owner.commit({A: offset})
    membership.committed |= late
    membership.rebalance = "a member has joined"
    owner.rejoin_if_due()
    assert offsets(membership) == {A: 9}


def test_a_step_back_of_a_batch_has_its_leader_epoch(membership: Membership) -> None:
    owner = owner_of(ByTasks)
    owner.rejoin_if_due()
    membership.committed |= {A: CommitOffset(9), B: CommitOffset(9)}
    owner.offsets.note_epochs({A: 5}, {A: 3})
    owner.offsets.rewind({A: 5, B: 7})
    assert {tp: (one.offset, one.leader_epoch) for tp, one in membership.committed.items()} == {A: (5, 3), B: (7, -1)}


def test_a_late_commit_is_repaired_after_a_suspension(membership: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (as_members, kept_offsets):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: membership.clock, time=time.time))
    owner = owner_of(ByDriver)
    owner.rejoin_if_due()
    # The process is suspended before the first request for longer than a request may take.
    membership.suspended = 100.0
    owner.commit({A: 5})
    late = {A: membership.committed[A]}
    owner.commit({A: 9})
    membership.committed |= late
    membership.clock += 2.0
    owner.commit({A: 9})
    assert offsets(membership) == {A: 9}


class Group:
    """A group with these offsets, in which a stream owns these partitions."""

    def __init__(self, committed: Mapping[TopicPartition, CommitOffset], slots: Mapping[TopicPartition, int]) -> None:
        self._committed, self._owned = committed, OwnedPartitions(slots, 2)

    def rewound(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
        return rewinds_in(committed)

    def rejoined(self) -> OwnedPartitions:
        return self._owned

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        return {tp: self._committed[tp] for tp in partitions if tp in self._committed}


PLANNED = [PlannedInput(0, (Range("t", 0, 0, 5), Range("t", 1, 0, 5))), PlannedInput(1, (Range("t", 2, 0, 5),))]
BATCH = StreamOffset({tp: Span(0, 5, 0) for tp in (A, B, C)})


def test_a_replay_of_tasks_ends_at_rewinds_and_commits_nothing_over_others() -> None:
    # A was rewound to 2, others have read on in B, and another member owns C.
    committed = {
        A: CommitOffset(2, metadata=OffsetNote(rewound="mark").metadata),
        B: CommitOffset(8),
        C: CommitOffset(0),
    }
    group = Group(committed, {A: 0, B: 1})
    found = ByTasks(options_of(commit="task")).replay(PLANNED, BATCH, group)
    assert found.planned == [
        PlannedInput(0, (Range("t", 0, 0, 2),)),
        PlannedInput(1, (Range("t", 1, 0, 5), Range("t", 2, 0, 5))),
    ]
    assert found.uncommitted == {A, B, C}


@pytest.mark.parametrize("policy", [CommitPolicy, ByDriver, ByProgram])
def test_other_replays_read_what_was_planned(policy: type[CommitPolicy]) -> None:
    assert policy(options_of()).replay(PLANNED, BATCH, Group({}, {})) == (PLANNED, frozenset())


def test_a_replay_for_a_sink_that_has_decided_nothing_reads_what_the_group_leaves() -> None:
    group = Group({A: CommitOffset(3)}, {A: 1, B: 0})
    found = BySink(options_of(commit="sink")).replay(PLANNED, BATCH, group)
    assert found == ([PlannedInput(0, (Range("t", 1, 0, 5),)), PlannedInput(1, (Range("t", 0, 3, 5),))], frozenset())


def test_a_sink_that_does_not_commit_gets_no_second_batch(caplog: pytest.LogCaptureFixture) -> None:
    policy, idle = BySink(options_of(commit="sink")), Group({A: CommitOffset(0)}, {}).committed
    for _ in range(2):
        policy.check_finished(BATCH, idle, has_new=False)
    assert caplog.text.count("A second micro-batch is refused") == 1
    with pytest.raises(InvalidConfigurationError, match="has not committed the first micro-batch"):
        policy.check_finished(BATCH, idle, has_new=True)
    assert not policy.may_plan_empty
    policy.check_finished(BATCH, Group({A: CommitOffset(5)}, {}).committed, has_new=True)
    assert policy.may_plan_empty
    # From then on nothing is looked up.
    policy.check_finished(BATCH, idle, has_new=True)


@given(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.booleans(), st.booleans())
def test_the_higher_offset_counts_but_behind_a_sinks_batch(
    own: int | None, group: int | None, by_sink: bool, has_id: bool
) -> None:
    start = StreamOffset(by_sink=by_sink, stream="me" if has_id else None)
    higher = max((offset for offset in (own, group) if offset is not None), default=None)
    for policy in POLICIES:
        decided = policy is BySink and by_sink and has_id
        expected = (own if group is None else group) if decided else higher
        assert policy(options_of()).counts(start)(own, group) == expected


def test_the_sink_is_handed_what_the_whole_batch_reads() -> None:
    policy, batch = BySink(options_of(commit="sink")), replace(BATCH, stream="me")
    (handoff,) = policy.tasks_made(PLANNED, {0: MEMBER}, batch, {"t": "id"})
    assert handoff.ranges == dict.fromkeys((A, B, C), (0, 5))
    assert (handoff.stream, handoff.member.group, handoff.topic_ids) == ("me", "g", {"t": "id"})
    with pytest.raises(ValueError, match="commit=sink"):
        policy.tasks_made(PLANNED, {}, batch, {})
    assert ByTasks(options_of(commit="task")).tasks_made(PLANNED, {0: MEMBER}, batch, {}) == ()


class Session(SlotSession):
    """The session of a slot, which records."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, CommitOffset]] = []

    @property
    def credentials(self) -> SlotCredentials:
        return MEMBER

    def check(self) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, object], *_: object, has_looked: bool = True) -> None:
        self.commits.append({tp: entry for tp, entry in offsets.items() if isinstance(entry, CommitOffset)})


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    done: Future[list[SlotSession]] = Future()
    done.set_result([made])
    monkeypatch.setattr(SlotSession, "attach_all", lambda *_: done)
    return made


def read(policy: CommitPolicy, task: ReadTask) -> None:
    with policy.in_task([task]) as attached:
        attached.check()
        attached.commit(lambda done, commit: commit(done, has_looked=True))


@pytest.mark.parametrize("policy", [ByDriver, ByTasks, BySink, CommitPolicy])
def test_only_tasks_that_commit_do_so_behind_their_last_record(session: Session, policy: type[CommitPolicy]) -> None:
    ranges = (Range("t", 0, 0, 5, epoch=2), Range("t", 1, 0, 7, replica=1), Range("t", 2, 0, 9))
    task = ReadTask(ranges, MEMBER, stream="me", rewinds={A: "mark"}, uncommitted=frozenset({C}))
    read(policy(options_of()), task)
    # Not a copy's end, and not where others have committed further.
    note = OffsetNote("me", "mark").metadata
    assert session.commits == ([{A: CommitOffset(5, 2, note)}] if policy is ByTasks else [])


def test_a_task_asks_for_new_credentials_only_where_it_commits() -> None:
    ranges = (Range("t", 0, 0, 5), Range("t", 1, 0, 7, replica=1), Range("t", 2, 0, 9))
    task = ReadTask(ranges, replace(MEMBER, right="an-id"), stream="me", uncommitted=frozenset({C}))
    # Another member may own the third partition, and its owner would be published as lost.
    renewal = renewal_of(task)
    assert renewal is not None
    assert renewal.ranges == {A: (0, 5)}
    assert renewal_of(replace(task, uncommitted=frozenset({A, C}))) is None


def test_tasks_of_a_batch_sign_with_the_id_of_their_right(session: Session) -> None:
    read(ByTasks(options_of(Where.BATCH)), ReadTask((Range("t", 0, 0, 5),), replace(MEMBER, right="an-id")))
    assert session.commits == [{A: CommitOffset(5, metadata="an-id")}]
