"""Which rewinds of its group a query has followed, and what it may commit after one."""

from __future__ import annotations

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.source.plan import PlannedInput, plan
from kafka_source.source.rewind_marks import RewindMarks, with_marks
from kafka_source.source.sink_commit_replay import position, remaining

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = (CommitOffset(10, metadata=OffsetNote(rewound=one).metadata) for one in ("first", "second"))


def test_a_mark_is_news_until_it_is_followed() -> None:
    marks = RewindMarks()
    committed = {A: FIRST, B: CommitOffset(5, metadata="a stream's id")}
    assert marks.news(committed) == {A: "first"}
    marks.follow({A: "first"})
    assert marks.news(committed) == {}
    assert marks.news({A: SECOND}) == {A: "second"}


def test_the_checkpoint_knows_what_was_followed_before_a_restart() -> None:
    marks = RewindMarks()
    marks.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "first"}))
    assert marks.news({A: FIRST}) == {}
    # An offset that Spark still has from before, in the process that has followed a later one.
    marks.follow({A: "second"})
    marks.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "first"}))
    assert marks.of([A, B]) == {A: "second"}
    marks.learn(StreamOffset({A: Span(10, 20, 0)}, rewinds={A: "third"}), newest=True)
    assert marks.of([A, B]) == {A: "third"}


def test_ends_from_before_a_rewind_are_not_committed_over_it() -> None:
    marks = RewindMarks()
    before = StreamOffset({A: Span(90, 100, 0), B: Span(90, 100, 0)})
    assert marks.current_ends(before) == {A: 100, B: 100}
    marks.follow({A: "first"})
    assert marks.current_ends(before) == {B: 100}
    after = StreamOffset({A: Span(10, 30, 0), B: Span(100, 110, 0)}, rewinds=marks.of([A, B]))
    assert marks.current_ends(after) == {A: 30, B: 110}


def test_later_commits_keep_the_mark() -> None:
    marks = RewindMarks()
    marks.follow({A: "first"})
    assert marks.marked({A: 30, B: 110}) == {A: CommitOffset(30, metadata=FIRST.metadata), B: CommitOffset(110)}
    assert with_marks({A: 30}, {}, None) == {A: CommitOffset(30)}


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
    assert remaining(planned, {A, B}, committed, "mine") == [PlannedInput(0, (Range("t", 1, 50, 60),))]
    # It was planned at the rewound offset.
    again = [PlannedInput(0, (Range("t", 0, 10, 60),))]
    assert remaining(again, {A, B}, committed, "mine") == again
    assert position(A, 60, committed, "mine") == 10
