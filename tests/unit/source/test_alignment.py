"""Partitions in step by time: over random logs no record is planned too early, and every record is planned once."""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.rewind_target import MAX_LONG
from kafka_source.source.alignment import FUTURE_MS, Alignment, Record
from kafka_source.source.log_times import BrokerTimes
from kafka_source.source.plan import rate_limit
from tests.support.fake_broker import TOPIC, FakeBroker, Partition

NOW = 10**9
FUTURE = NOW + 2 * FUTURE_MS
A, B, C = (TopicPartition("t", number) for number in range(3))


@dataclass
class Logs:
    """Logs with the answers of brokers: reads leave out control and aborted records, lookups by time do not.

    Attributes:
        data: The records that a query reads.
        other: Control records and those of aborted transactions.
        ends: The end of each log; offsets without a record are those that compaction has removed.
        requests: The number of lookups.
        returned: The number of records that reads have returned.
    """

    data: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    other: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    requests: int = 0
    returned: int = 0

    def append(self, tp: TopicPartition, entries: Sequence[tuple[str, int]]) -> None:
        for kind, timestamp in entries:
            offset = self.ends[tp] = self.ends.setdefault(tp, 0) + 1
            if kind != "gap":
                logs = self.data if kind == "data" else self.other
                logs.setdefault(tp, []).append(Record(offset - 1, timestamp))

    def records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, list[Record]]:
        self.requests += 1
        found = {tp: records for tp, one in ranges.items() if (records := self.within(tp, *one))}
        self.returned += sum(map(len, found.values()))
        return found

    def first_later(self, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, Record]:
        self.requests += 1
        found = {}
        for tp in partitions:
            everything = self.data.get(tp, []) + self.other.get(tp, [])
            if later := [one for one in everything if one.timestamp > timestamp]:
                found[tp] = min(later)
        return found

    def within(self, tp: TopicPartition, start: int, end: int) -> list[Record]:
        return [one for one in self.data.get(tp, []) if start <= one.offset < end]

    def disorder(self) -> int:
        """Return by how much a record is at most older than one before it in its partition."""
        most = 0
        for records in self.data.values():
            latest = 0
            for one in records:
                if one.timestamp < FUTURE:
                    latest = max(latest, one.timestamp)
                    most = max(most, latest - one.timestamp)
        return most


class Query:
    """What a planner does: it owns partitions, and reads what is planned."""

    def __init__(self, logs: Logs, skew: int) -> None:
        self.logs, self.skew = logs, skew
        self.alignment = Alignment(skew, logs, lambda: NOW)
        self.positions: dict[TopicPartition, int] = {}
        self.target: dict[TopicPartition, int] | None = None

    def trigger(
        self,
        most: int | None,
        *,
        away: frozenset[TopicPartition] = frozenset(),
        stuck: frozenset[TopicPartition] = frozenset(),
    ) -> dict[TopicPartition, int]:
        """Plan and read one micro-batch; return its ends."""
        starts = dict(self.positions)
        available = {
            tp: at if tp in away else max(at, (self.target or self.logs.ends).get(tp, at)) for tp, at in starts.items()
        }

        def admit(bounds: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            spans = {
                tp: (at, at if tp in stuck else min(available[tp], bounds.get(tp, available[tp])))
                for tp, at in starts.items()
            }
            return rate_limit(spans, most)

        asked = self.logs.requests
        ends = self.alignment.ends(starts, available, away, admit)
        if admit({}) == available and not away:
            # The limits let each partition reach its end.
            assert (self.logs.requests, self.alignment.figures) == (asked, None)
        self.check(starts, ends, available, away)
        self.positions = dict(ends)
        return ends

    def check(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        away: frozenset[TopicPartition],
    ) -> None:
        assert starts.keys() == ends.keys()
        assert all(starts[tp] <= ends[tp] <= available[tp] for tp in starts)
        if all(ends[tp] == available[tp] for tp in starts):
            return  # It reads everything.
        left = set(self.alignment.left_out)
        nexts = [
            next((one.timestamp for one in self.logs.within(tp, at, available[tp]) if one.timestamp < FUTURE), FUTURE)
            for tp, at in starts.items()
            if tp not in left
        ]
        latest = min(nexts, default=FUTURE) + self.skew + 2 * self.logs.disorder()
        for tp, at in starts.items():
            for one in self.logs.within(tp, at, ends[tp]):
                assert one.timestamp <= latest or one.timestamp >= FUTURE or latest >= FUTURE, (tp, one)


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Draw a piece of a log: its density, its order and what is in it besides records."""
    time, pace = draw(st.integers(0, 2000)), draw(st.sampled_from([0, 1, 10, 100]))
    jitter = draw(st.sampled_from([0, 0, 5, 500]))
    kinds = draw(st.lists(st.sampled_from(["data"] * 12 + ["gap", "aborted", "control", "future"]), max_size=80))
    found = []
    for number, kind in enumerate(kinds):
        at = time + number * pace + (draw(st.integers(-jitter, jitter)) if jitter else 0)
        # The control record of a transaction that was written long after the times of its records.
        late = (
            FUTURE if kind == "future" else max(0, at) + (draw(st.sampled_from([0, 5000])) if kind == "control" else 0)
        )
        found.append(("data" if kind == "future" else kind, late))
    return found


limits = st.sampled_from([None, 1, 3, 10, 50, 1000])
partitions = st.sampled_from([A, B, C])
events = st.one_of(
    st.tuples(st.just("append"), partitions, entries()),
    st.tuples(st.just("take"), partitions, st.integers(0, 100)),
    st.tuples(st.just("give"), partitions, st.none()),
    st.tuples(st.just("away"), partitions, st.none()),
    st.tuples(st.just("back"), partitions, st.none()),
)


@given(
    st.lists(entries(), min_size=3, max_size=3),
    st.lists(st.tuples(limits, st.none() | events), max_size=25),
    st.integers(0, 300),
)
def test_no_record_is_planned_beyond_the_skew_and_each_trigger_makes_progress(pieces, story, skew):
    logs = Logs()
    query, away = Query(logs, skew), set[TopicPartition]()
    for tp, piece in zip([A, B, C], pieces, strict=True):
        logs.append(tp, piece)
        query.positions[tp] = 0
    for most, event in story:
        match event:
            case ("append", tp, piece):
                logs.append(tp, piece)
            case ("take", tp, at):
                query.positions[tp] = min(at, logs.ends.get(tp, 0))
            case ("give", tp, _):
                query.positions.pop(tp, None)
            case ("away", tp, _):
                away.add(tp)
            case ("back", tp, _):
                away.discard(tp)
        before = dict(query.positions)
        query.trigger(most, away=frozenset(away & before.keys()))
        can_read = any(before[tp] < logs.ends.get(tp, 0) for tp in before.keys() - away)
        assert query.positions != before or not can_read or away & before.keys()


@given(st.lists(entries(), min_size=3, max_size=3), limits, st.integers(0, 300))
def test_a_run_to_the_present_ends_reads_each_record_once_and_nothing_that_is_added_meanwhile(pieces, most, skew):
    logs = Logs()
    query = Query(logs, skew)
    for tp, piece in zip([A, B, C], pieces, strict=True):
        logs.append(tp, piece)
        query.positions[tp] = 0
    query.target = target = {tp: logs.ends.get(tp, 0) for tp in query.positions}
    for _ in range(sum(target.values()) + 1):
        if query.positions == target:
            break
        before = dict(query.positions)
        assert query.trigger(most) != before
        logs.append(A, [("data", NOW)])
    assert query.positions == target


def filled(**times: range) -> Logs:
    logs = Logs()
    for name, of in times.items():
        logs.append(TopicPartition("t", "abc".index(name)), [("data", time) for time in of])
    return logs


def query_of(logs: Logs, skew: int) -> Query:
    query = Query(logs, skew)
    query.positions = dict.fromkeys(logs.ends, 0)
    return query


def test_a_dense_and_a_sparse_partition_are_read_in_step():
    query = query_of(filled(a=range(0, 1000), b=range(0, 1000, 100)), 99)
    assert query.trigger(500) == {A: 100, B: 1}
    figures = query.alignment.figures
    assert figures is not None
    assert (figures.time_ms, figures.held_by, figures.skew_before_ms, figures.skew_after_ms) == (0, A, 0, 0)


def test_nothing_is_looked_up_while_the_limits_cut_what_a_look_up_has_found():
    logs = filled(a=range(0, 10_000), b=range(0, 10_000, 10))
    query = query_of(logs, 5000)
    query.trigger(500)
    asked = logs.requests
    for _ in range(9):
        query.trigger(500)
    assert logs.requests == asked == 2
    query.trigger(1000)
    assert logs.requests > asked


def test_a_partition_that_is_at_its_end_holds_no_other_back():
    logs = filled(a=range(0, 100), b=range(0, 1))
    query = query_of(logs, 10)
    query.positions[B] = 1
    query.trigger(50)
    assert query.alignment.figures is not None
    assert query.alignment.figures.held_by == A


def test_a_control_record_that_was_written_long_after_its_transaction_holds_nothing_back():
    logs = Logs()
    for tp in (A, B):
        for time in range(0, 1000, 10):
            logs.append(tp, [("data", time), ("control", 5000 + time)])
    query = query_of(logs, 50)
    for _ in range(40):
        query.trigger(100)
    assert query.positions == logs.ends


def test_records_after_one_from_the_future_stay_in_step(caplog):
    logs = filled(a=range(0, 3000), b=range(0, 3000, 10))
    logs.data[A][5] = Record(5, FUTURE)
    query = query_of(logs, 100)
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            query.trigger(500)
    assert query.positions == logs.ends
    assert [one.getMessage().split(":")[0] for one in caplog.records] == [
        "t-0 has records that maxTimestampSkew does not count"
    ]


@pytest.mark.parametrize("bad", [[A], [A, B, C]])
def test_a_long_run_of_records_that_do_not_count_is_looked_up_in_pieces(bad):
    logs = filled(a=range(0, 3000, 10), b=range(0, 3000, 10), c=range(0, 3000, 10))
    for tp in bad:
        del logs.data[tp], logs.ends[tp]
        logs.append(tp, [("data", FUTURE)] * 300_000 + [("data", 3000)] * 10)
    query = query_of(logs, 100)
    while query.positions != logs.ends:
        before, returned = dict(query.positions), logs.returned
        query.trigger(100_000)
        assert query.positions != before
        assert logs.returned - returned < 4 * 65_536
        if before[A] < 300_000:
            # No other partition waits for records that do not count.
            assert all(query.positions[tp] > before[tp] for tp in (A, B, C))


def test_a_partition_that_is_not_read_for_three_triggers_holds_the_others_no_longer(caplog):
    query = query_of(filled(a=range(0, 1000), b=range(500, 1000)), 100)
    found = [query.trigger(1000, stuck=frozenset([A]))[B] for _ in range(4)]
    assert found[:3] == [0, 0, 0]
    assert found[3] > 0
    assert "leaves it out until it moves" in caplog.text


@pytest.mark.parametrize("most", [40, None])
def test_a_partition_without_a_leader_holds_the_others_at_its_last_time(most):
    query = query_of(filled(a=range(0, 1000), b=range(0, 1000)), 100)
    query.trigger(40)
    away = frozenset([A])
    for _ in range(10):
        query.trigger(most, away=away)
    assert query.positions == {A: 20, B: 101}
    for _ in range(60):
        query.trigger(40)
    assert query.positions == query.logs.ends


def test_a_query_that_starts_without_a_leader_reads_the_others_and_names_the_partition_once(caplog):
    query = query_of(filled(a=range(0, 1000), b=range(0, 1000)), 100)
    for _ in range(30):
        query.trigger(40, away=frozenset([A]))
    assert query.positions == {A: 0, B: 1000}
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith("maxTimestampSkew does not wait for t:0, which no broker leads")


def test_a_skew_may_be_the_greatest_long():
    tp = TopicPartition(TOPIC, 0)
    with closing(FakeBroker()) as broker:
        broker.partitions = {0: Partition(end=7)}
        settings = Settings({"bootstrap.servers": broker.bootstrap_servers})
        with closing(Cluster(settings)) as cluster:
            times = BrokerTimes(settings, cluster, engine="auto", read_committed=False)
            assert times.first_later([tp], NOW + MAX_LONG) == {}


def test_a_partition_that_is_taken_over_is_waited_for():
    query = query_of(filled(b=range(5000, 9000), a=range(0, 3000)), 100)
    del query.positions[A]
    query.trigger(1000)
    before = query.positions[B]
    query.positions[A] = 0
    query.trigger(1000)
    assert query.positions == {A: 101, B: before}
