"""Where a query continues, which rewinds it has followed, and what it commits: the rules, without a broker."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from assignors.model import TopicPartition
from kafka_source.commits.by_sink import group_or_own, remaining
from kafka_source.commits.offsets import not_below
from kafka_source.commits.policy import max_offset
from kafka_source.model.commits import CommitOffset, OffsetNote, with_notes, without_topic
from kafka_source.model.stream_offset import PlannedInput, Range, Span, StreamOffset
from kafka_source.source.decision import Decision, Facts, GroupFacts, Known, Rules, decide
from kafka_source.source.plan import plan
from kafka_source.source.positions import Positions

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OFFSETS = st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 3))
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = (CommitOffset(10, metadata=OffsetNote(rewound=one).metadata) for one in ("first", "second"))


def test_a_mark_is_news_until_it_is_followed() -> None:
    positions = Positions()
    committed = {A: FIRST, B: CommitOffset(5, metadata="a stream's id")}
    assert positions.unfollowed_rewinds(committed) == {A: "first"}
    positions.note_rewinds({A: "first"})
    assert positions.unfollowed_rewinds(committed) == {}
    assert positions.unfollowed_rewinds({A: SECOND}) == {A: "second"}


def test_the_checkpoint_knows_what_was_followed_before_a_restart() -> None:
    positions = Positions()
    positions.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "first"}))
    assert positions.unfollowed_rewinds({A: FIRST}) == {}
    # An offset that Spark still has from before, in the process that has followed a later one.
    positions.note_rewinds({A: "second"})
    positions.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "first"}))
    assert positions.rewinds([A, B]) == {A: "second"}
    positions.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "third"}), newest=True)
    assert positions.rewinds([A, B]) == {A: "third"}


def test_ends_from_before_a_rewind_are_not_committed_over_it() -> None:
    positions = Positions()
    before = StreamOffset({A: Span(90, 100, 0), B: Span(90, 100, 0)})
    assert positions.current_ends(before) == {A: 100, B: 100}
    positions.note_rewinds({A: "first"})
    assert positions.current_ends(before) == {B: 100}
    after = StreamOffset({A: Span(10, 30, 0), B: Span(100, 110, 0)}, rewinds=positions.rewinds([A, B]))
    assert positions.current_ends(after) == {A: 30, B: 110}


def test_later_commits_keep_the_mark() -> None:
    positions = Positions()
    positions.note_rewinds({A: "first"})
    assert positions.with_notes({A: 30, B: 110}) == {A: CommitOffset(30, metadata=FIRST.metadata), B: CommitOffset(110)}
    assert with_notes({A: 30}, {}, None) == {A: CommitOffset(30)}


def test_an_offset_of_a_checkpoint_keeps_its_rewinds() -> None:
    marked = StreamOffset({A: Span(10, 30, 0), B: Span(0, 5, 0)}, slots=1, rewinds={A: "first"})
    assert StreamOffset.from_json(marked.to_json()) == marked
    assert "rewinds" not in StreamOffset({A: Span(10, 30, 0)}).to_json()
    assert marked.without({"t"}).rewinds == {}


def test_a_rewound_partition_is_read_again_and_the_others_are_not() -> None:
    start = StreamOffset({A: Span(0, 100, 0), B: Span(0, 100, 0)}, slots=1)
    end = StreamOffset({A: Span(20, 150, 0), B: Span(20, 150, 0)}, slots=1, rewinds={A: "first"})
    assert plan(end, start) == [PlannedInput(0, (Range("t", 0, 20, 150), Range("t", 1, 100, 150)))]
    # The start follows the rewind already.
    followed = StreamOffset({A: Span(0, 100, 0), B: Span(0, 100, 0)}, slots=1, rewinds={A: "first"})
    assert plan(end, followed) == [PlannedInput(0, (Range("t", 0, 100, 150), Range("t", 1, 100, 150)))]


def test_a_batch_that_nobody_decided_on_before_a_rewind_is_left_to_the_next_one() -> None:
    planned = [PlannedInput(0, (Range("t", 0, 50, 60), Range("t", 1, 50, 60)))]
    committed = {A: FIRST, B: CommitOffset(50, metadata="mine")}
    left = [PlannedInput(0, (Range("t", 1, 50, 60),))]
    assert remaining(planned, {A: 0, B: 0}, committed, StreamOffset()) == left
    # Another tool has set the group back.
    assert remaining(planned, {A: 0, B: 0}, committed | {A: CommitOffset(10)}, StreamOffset(by_sink=True)) == left
    # It follows the rewind, and its group lacks the last commit.
    assert remaining(planned, {A: 0, B: 0}, committed, StreamOffset(rewinds={A: "first"})) == planned
    # It was planned at the rewound offset.
    again = [PlannedInput(0, (Range("t", 0, 10, 60),))]
    assert remaining(again, {A: 0, B: 0}, committed, StreamOffset()) == again
    assert group_or_own(60, committed[A].offset) == 10


@given(OFFSETS, OFFSETS)
def test_only_what_has_changed_since_the_last_commit_is_missing(
    before: dict[TopicPartition, int], now: dict[TopicPartition, int]
) -> None:
    positions = Positions()
    positions.as_committed(before)
    assert positions.missing(now) == dict(now.items() - before.items())
    positions.as_committed(positions.missing(now))
    assert positions.missing(now) == {}


def test_a_topic_created_again_has_nothing_committed_yet() -> None:
    positions = Positions()
    positions.as_committed({A0: 5, B0: 7})
    positions.forget_topics({"a"})
    assert not positions.has_compared(A0)
    assert positions.has_compared(B0)
    assert positions.missing({A0: 5, B0: 7}) == {A0: 5}


def test_a_commit_names_the_topic_that_was_read() -> None:
    positions, checkpoint = Positions(), StreamOffset({A0: Span(0, 5, 0)}, topics={"a": "old", "b": "same"})
    positions.note_topics({"b": "same"}, "here")

    def ids() -> dict[str, str | None]:
        noted = positions.with_notes({A0: 1, B0: 1})
        assert [OffsetNote.parse(entry.metadata).topic for entry in noted.values()] == [
            entry.topic_id for entry in noted.values()
        ]
        assert {OffsetNote.parse(entry.metadata).cluster for entry in noted.values()} == {"here"}
        return {tp.topic: entry.topic_id for tp, entry in noted.items()}

    positions.learn(checkpoint)
    assert ids() == {"a": "old", "b": "same"}
    # Whoever plans leaves the lost topic out of the checkpoint's offset, and describes the new one.
    positions.forget_topics({"a"})
    positions.learn(checkpoint.without({"a"}))
    positions.note_topics({"a": "new"}, "here")
    assert ids() == {"a": "new", "b": "same"}
    # A program commits what it has read before.
    positions.learn(checkpoint)
    assert ids() == {"a": "old", "b": "same"}


TOPICS = st.sampled_from([None, "of now", "before"])


@given(TOPICS, st.sampled_from([None, "here", "elsewhere"]), st.none() | st.just("of now"))
def test_only_a_note_of_this_cluster_and_of_another_topic_makes_an_offset_count_for_nothing(
    noted: str | None, cluster: str | None, now: str | None
) -> None:
    positions = Positions()
    positions.note_topics({} if now is None else {"a": now}, "here")
    entry = CommitOffset(7, metadata=OffsetNote("a stream", None, noted, cluster).metadata)
    is_ignored = (noted, cluster, now) == ("before", "here", "of now")
    assert positions.of_these_topics({A0: entry}) == ({} if is_ignored else {A0: entry})
    assert positions.ignored([A0, B0]) == ({A0} if is_ignored else frozenset())
    assert positions.of_these_topics({A0: without_topic(entry)})
    # The next owner commits where the topic begins.
    positions.of_these_topics({A0: CommitOffset(0)})
    assert not positions.ignored([A0])


def test_of_a_rewound_partition_everything_is_missing_again() -> None:
    positions = Positions()
    positions.as_committed({A0: 5, A1: 5})
    positions.follow({tp: Decision(Known(rewind="first")) for tp in (A0, B0)})
    assert positions.missing({A0: 5, A1: 5}) == {A0: 5}


def test_where_the_group_was_set_back_for_a_truncated_log_the_same_end_is_missing_again() -> None:
    """Another application has committed the earlier offset, and the log has the same end again."""
    positions = Positions()
    positions.as_committed({A0: 5, B0: 7})
    positions.follow({A0: Decision(Known(next=0, epoch=2)), B0: Decision(Known(next=7))})
    assert positions.missing({A0: 5, B0: 7}) == {A0: 5}


def test_what_was_committed_an_hour_ago_is_old_until_it_is_committed_again() -> None:
    now = 0.0
    positions = Positions(lambda: now)
    positions.as_committed({A0: 5})
    now = 3599.0
    positions.as_committed({A1: 6})
    assert positions.old() == {}
    now = 3600.0
    assert positions.old() == {A0: 5}
    positions.as_committed({A0: 5})
    now = 7199.0
    assert positions.old() == {A1: 6}
    positions.follow({A1: Decision(Known(rewind="first"))})
    assert positions.old() == {}


@given(
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 9)),
)
def test_a_group_is_set_back_and_never_forward(
    starts: dict[TopicPartition, int], there: dict[TopicPartition, int]
) -> None:
    committed = {tp: CommitOffset(offset) for tp, offset in there.items()}
    assert not_below(starts, committed) == {tp: at for tp, at in starts.items() if there.get(tp, at) >= at}


def test_a_partition_that_comes_back_before_the_next_batch_has_been_read_to_the_end_of_the_last_one() -> None:
    positions, last = Positions(), StreamOffset({A: Span(54, 154, 0)}, stream="mine")
    positions.begin(last)
    positions.keep([])  # Another member owns it.
    positions.begin(last)
    assert positions.next_of([A]) == {A: 154}
    positions.keep([])
    positions.follow({A: Decision(Known(rewind="rewound"))})
    positions.begin(last)
    assert positions.next_of([A]) == {}


class OnePartition(RuleBasedStateMachine):
    """A partition that a query shares with others of its group, against what has been read of it.

    The query resolves its position when it starts and after each rebalance, and its driver commits as `commit=batch`
    does. Others read what the query does not own, from the group's offset on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.group: CommitOffset | None = None
        self.checkpoint = StreamOffset(stream="mine")
        self.read: set[int] = set()
        self.start()

    def start(self) -> None:
        self.positions = Positions()
        self.positions.learn(self.checkpoint)
        self.resolve()

    def resolve(self) -> None:
        """As after a rebalance: nothing is skipped that nobody has read."""
        self.positions.begin(self.checkpoint)
        one = decide(A, self.positions.known(A), Facts(GroupFacts(self.group), 0), Rules(max_offset))
        self.positions.follow({A: one})
        assert set(range(self.position)) <= self.read
        self.is_compared = False

    @property
    def position(self) -> int:
        return self.positions.next_of([A])[A]

    def commit(self) -> None:
        committed = {} if self.group is None else {A: self.group}
        missing = self.positions.missing(self.positions.current_ends(self.checkpoint))
        if missing and not self.is_compared:
            missing = self.positions.not_behind(missing, {tp: committed[tp] for tp in missing if tp in committed})
            self.is_compared = True
        for tp, entry in self.positions.with_notes(missing).items():
            assert tp == A
            assert self.group is None or entry.offset >= self.group.offset or entry.metadata == self.group.metadata
            self.group = entry
        self.positions.as_committed(missing)

    @rule(count=st.integers(1, 5), commits=st.booleans())
    def read_a_batch(self, count: int, commits: bool) -> None:
        first = self.position
        self.read |= set(range(first, first + count))
        span = {A: Span(first, first + count, 0)}
        self.checkpoint = StreamOffset(span, stream="mine", rewinds=self.positions.rewinds([A]))
        self.positions.begin(self.checkpoint)
        assert self.position == first + count
        if commits:
            self.commit()

    @rule(count=st.integers(1, 5))
    def others_read(self, count: int) -> None:
        """The query commits in the old generation first, if it can; then others have the partition for a while."""
        self.commit()
        first = 0 if self.group is None else self.group.offset
        self.read |= set(range(first, first + count))
        mark = None if self.group is None else OffsetNote.parse(self.group.metadata).rewound
        self.group = CommitOffset(first + count, metadata=OffsetNote("others", mark).metadata)
        self.resolve()

    @rule(to=st.integers(0, 20))
    def rewind(self, to: int) -> None:
        """Everything from there on is to be read again."""
        to = min(to, max(self.read, default=-1) + 1)
        self.read = set(range(to))
        self.marks = getattr(self, "marks", 0) + 1
        self.group = CommitOffset(to, metadata=OffsetNote(rewound=f"rewind-{self.marks}").metadata)
        self.resolve()
        assert self.position == to

    @rule()
    def restart(self) -> None:
        self.start()

    @rule()
    def finish(self) -> None:
        self.commit()


TestOnePartition = OnePartition.TestCase
