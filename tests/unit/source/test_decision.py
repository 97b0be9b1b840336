"""What holds of every decision where a partition continues, whatever the query, its group and the log say."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.commits.by_sink import group_or_own
from kafka_source.commits.policy import max_offset
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.source.decision import (
    Beginning,
    Decision,
    Facts,
    GroupFacts,
    Known,
    LogFacts,
    Need,
    Rules,
    Start,
    begin,
    decide,
)

TP = TopicPartition("t", 0)

offsets = st.integers(0, 20)
epochs = st.integers(-1, 3)
marks = st.none() | st.sampled_from(["first", "second"])
entries = st.builds(
    lambda offset, epoch, mark: CommitOffset(offset, epoch, OffsetNote("any", mark).metadata), offsets, epochs, marks
)
rules = st.builds(
    Rules,
    st.sampled_from([max_offset, group_or_own]),
    replays=st.booleans(),
    is_output=st.booleans(),
    fails_on_loss=st.booleans(),
    patience_seconds=st.just(30.0),
)
groups = st.builds(GroupFacts, st.none() | entries, st.none() | offsets)
bounds = st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))


@st.composite
def knowns(draw: st.DrawFn, position: st.SearchStrategy[int | None]) -> Known:
    at, epoch = draw(position), draw(epochs)
    other = None if at is None else draw(st.none() | st.integers(0, at))
    return Known(at, other, draw(st.booleans()), draw(marks), epoch, draw(st.integers(epoch, 3)))


@st.composite
def logs(draw: st.DrawFn) -> LogFacts:
    log = draw(bounds)
    latest = draw(st.integers(*log))
    return LogFacts(latest, draw(epochs), draw(st.integers(-1, log[1])), log, draw(st.sampled_from([0.0, 29.0, 30.0])))


def by_group(known: Known, group: GroupFacts, rule: Rules) -> Decision:
    return decide(TP, known, Facts(group), rule)


def by_log(known: Known, log: LogFacts, rule: Rules) -> Decision:
    return decide(TP, known, Facts(log=log), rule)


@given(knowns(st.none() | offsets), st.none() | groups, offsets, logs(), rules, st.booleans())
def test_a_decision_asks_for_one_fact_after_the_other_and_rests_on_all_of_them(
    known: Known, group: GroupFacts | None, start: int, log: LogFacts, rule: Rules, asks_group: bool
) -> None:
    rule = replace(rule, asks_group=asks_group)
    assume(group is not None or not (asks_group or known.next is None))
    looks = [
        (Need.GROUP, Facts()),
        (Need.START, Facts(group)),
        (Need.LATEST, Facts(group, start)),
        (Need.EPOCH_END, Facts(group, start, replace(log, epoch_end=None, bounds=None))),
        (Need.BOUNDS, Facts(group, start, replace(log, bounds=None))),
        (None, Facts(group, start, log)),
    ]
    needs = [need for need, _ in looks]
    asked = [decide(TP, known, facts, rule) for _, facts in looks]
    assert all(
        one.need is None or one.need in needs[needs.index(need) :] for (need, _), one in zip(looks, asked, strict=True)
    )
    continued = Decision(known) if group is None else by_group(known, group, rule)
    position = start if continued.known.next is None else continued.known.next
    last = by_log(replace(continued.known, next=position), log, replace(rule, asks_group=False))
    stepped_from = last.stepped_from if continued.stepped_from is None else continued.stepped_from
    expected = replace(last, rewound_from=continued.rewound_from, stepped_from=stepped_from, loss=asked[-1].loss)
    assert (asked[-1], str(asked[-1].loss)) == (expected, str(last.loss))


sets = st.sets(st.just(TP))


@given(st.builds(Beginning, st.booleans(), st.sets(st.just("t")), sets, sets, sets, st.booleans()))
def test_a_partition_that_was_added_begins_at_its_first_offset(given: Beginning) -> None:
    found = begin(TP, given)
    is_new = TP not in given.subscribed or (given.has_read and not given.words)
    assert (found is Start.BY_OPTIONS) == (not is_new and TP not in given.replaced)
    if found is not Start.BY_OPTIONS:
        # Records before the first offset of a younger partition are lost, unless others may have read them.
        others = TP in given.replaced or TP in given.later or (given.shares and TP in given.subscribed)
        assert (found is Start.ADDED) == (not others)


@given(knowns(st.none() | offsets), groups, rules)
def test_a_group_decides_at_once_and_no_offset_is_made_up(known: Known, group: GroupFacts, rule: Rules) -> None:
    one = by_group(known, group, rule)
    assert one.need is (Need.START if one.known.next is None else Need.LATEST)
    assert (one.loss, one.waits) == (None, False)
    entry = set() if group.entry is None else {group.entry.offset}
    assert one.known.next in {known.next, *entry}
    assert (one.known.next is None) == (known.next is None and not entry)


@given(knowns(st.none() | offsets), groups, rules)
def test_nothing_begins_before_the_groups_offset_but_by_the_users_word(
    known: Known, group: GroupFacts, rule: Rules
) -> None:
    one = by_group(known, group, rule)
    if group.entry is not None and one.known.next is not None and one.known.next < group.entry.offset:
        assert rule.replays and group.own_ahead == group.entry.offset
        assert one.stepped_from == group.entry.offset
    if one.stepped_from is not None:
        assert one.known.is_replaced and one.known.next == known.next


@given(knowns(st.none() | offsets), entries, rules)
def test_a_rewound_partition_begins_at_the_target_once(known: Known, entry: CommitOffset, rule: Rules) -> None:
    mark = OffsetNote.parse(entry.metadata).rewound
    assume(mark is not None and mark != known.rewind)
    one = by_group(known, GroupFacts(entry), rule)
    assert (one.known.next, one.known.rewind, one.rewound_from) == (entry.offset, mark, known.next)
    # Read on from there, the query keeps its own position.
    later = replace(one.known, next=entry.offset + 1)
    assert by_group(later, GroupFacts(entry), replace(rule, counts=max_offset)).known == replace(
        later, other=entry.offset
    )


@given(knowns(st.none() | offsets), groups, rules)
def test_a_groups_facts_decide_the_same_again(known: Known, group: GroupFacts, rule: Rules) -> None:
    """A trigger that is retried looks again."""
    once = by_group(known, group, rule)
    assume(once.stepped_from is None)
    assert by_group(once.known, group, rule).known.next == once.known.next


@given(knowns(offsets), logs(), rules)
def test_a_log_sets_no_position_forward_and_none_back_without_a_loss(known: Known, log: LogFacts, rule: Rules) -> None:
    assert known.next is not None
    one = by_log(known, log, rule)
    assert one.need is None
    assert one.known.next is not None and one.known.next <= known.next
    assert (one.known.next < known.next) == (one.stepped_from is not None)
    if one.stepped_from is not None:
        assert one.stepped_from == known.next and one.loss is not None
        assert one.known.is_replaced
    assert not (rule.fails_on_loss and one.stepped_from is not None)
    # What does not count any more decides nothing later.
    assert one.known.other is None


@given(knowns(offsets), logs(), rules)
def test_a_batch_starts_within_its_log_or_reports_a_loss(known: Known, log: LogFacts, rule: Rules) -> None:
    """A start before the log moves to its first offset; any other position is decided as in a stream."""
    known, stream = replace(known, other=None), replace(rule, patience_seconds=0.0)
    assert known.next is not None and log.bounds is not None
    one = by_log(known, log, replace(stream, moves_to_first=True))
    assert one.need is None and one.known.next is not None
    if rule.fails_on_loss:
        assert one.known.next == known.next
    else:
        followed = by_log(known, log, stream).known.next
        assert followed is not None and one.known.next == max(followed, log.bounds[0])
    is_within = log.bounds[0] <= one.known.next <= log.bounds[1]
    assert is_within or (rule.fails_on_loss and one.loss is not None)
    assert (one.stepped_from is not None) == (one.known.next < known.next)


@given(knowns(offsets), logs(), rules)
def test_a_position_within_the_log_of_a_leader_that_has_it_stays(known: Known, log: LogFacts, rule: Rules) -> None:
    assert known.next is not None and log.epoch_end is not None
    assume(known.next <= log.latest)
    assume(not (0 <= known.checked < log.leader_epoch and 0 <= log.epoch_end < known.next))
    one = by_log(known, log, rule)
    assert one == Decision(one.known)
    assert one.known.next == known.next
    # Its leader is not asked again.
    assert by_log(one.known, replace(log, epoch_end=None), rule).need is None


@given(knowns(offsets), logs(), rules)
def test_a_loss_is_reported_unless_a_leader_may_be_behind(known: Known, log: LogFacts, rule: Rules) -> None:
    assert known.next is not None and log.bounds is not None
    assume(known.next > log.bounds[1])
    one = by_log(known, log, rule)
    assert one.waits == (one.loss is None)
    if one.waits:
        assert known.epoch >= 0 and log.short_seconds < rule.patience_seconds
        assert one.known.next == known.next
    elif one.stepped_from is not None:
        assert one.known.next is not None and one.known.next <= log.bounds[1]


@given(knowns(offsets), logs(), rules)
def test_a_further_look_is_asked_for_only_where_the_first_says_so(known: Known, log: LogFacts, rule: Rules) -> None:
    assert known.next is not None
    first = by_log(known, replace(log, epoch_end=None, bounds=None), rule)
    has_new_leader = 0 <= known.checked < log.leader_epoch
    assert (first.need is Need.EPOCH_END) == has_new_leader
    second = by_log(known, replace(log, bounds=None), rule)
    if second.need is not None:
        assert second.need is Need.BOUNDS and known.next > log.latest
        assert second.known == known
    assert second.doubts_topic == (second.need is not None or second.loss is not None)


@given(knowns(offsets), logs(), rules)
def test_where_the_group_says_what_the_output_has_nothing_below_the_log_is_read_again(
    known: Known, log: LogFacts, rule: Rules
) -> None:
    one = by_log(known, log, replace(rule, is_output=True))
    assert one.known == by_log(replace(known, other=None), log, replace(rule, is_output=True)).known
    if one.stepped_from is not None and log.bounds is not None:
        assert one.known.next in {log.epoch_end, log.bounds[1]}
