"""How far a paused or stopped query reads, and when it may leave its group."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.commits.offsets import Offsets
from kafka_source.errors import AuthenticationError
from kafka_source.model.halt import Halt, HaltKind, while_it_holds
from kafka_source.options import Where, read_options
from kafka_source.source import standstill
from kafka_source.source.standstill import Standstill, is_at_rest, limit

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
offsets = st.integers(0, 50)


def halt(kind: HaltKind, **boundaries: int) -> Halt:
    return Halt(
        kind, "ann@here", 0, boundaries={TopicPartition("orders", "ab".index(k)): v for k, v in boundaries.items()}
    )


@given(
    starts=st.fixed_dictionaries({A: offsets, B: offsets}),
    boundary=st.integers(1, 50),
    growth=st.lists(st.tuples(offsets, offsets), min_size=1),
    step=st.integers(1, 7),
)
def test_a_stopped_query_ends_exactly_at_its_boundaries(starts, boundary, growth, step):
    stop, at, latest = halt(HaltKind.STOP, a=boundary), dict(starts), dict(starts)
    for more in [*growth, *[(0, 0)] * 200]:
        latest = {tp: latest[tp] + one for tp, one in zip((A, B), more, strict=True)}
        ends = limit(stop, at, latest)
        at = {tp: min(at[tp] + step, max(at[tp], ends[tp])) for tp in at}
        assert is_at_rest(stop, at, at) == (at[A] >= boundary)
    # It may be behind the boundary when the stop comes; a partition without a boundary stays where it is.
    assert at == {A: max(starts[A], min(boundary, latest[A])), B: starts[B]}


@pytest.mark.parametrize("newest", [None, halt(HaltKind.RESUME, a=3)])
def test_a_query_reads_everything_where_nothing_halts_it(newest):
    assert limit(while_it_holds(newest), {A: 0, B: 0}, {A: 10}) == {A: 10}


def test_a_paused_query_reads_nothing():
    assert limit(halt(HaltKind.PAUSE), {A: 4, B: 0}, {A: 10, B: 5}) == {A: 4, B: 0}


@pytest.mark.parametrize(
    ("positions", "committed", "rests"),
    [
        ({A: 10}, {A: 10, B: 20}, True),
        # Another query has not committed its boundary.
        ({A: 10}, {A: 10, B: 19}, False),
        ({A: 10}, {A: 10}, False),
        # The last batch is not committed.
        ({A: 10, B: 20}, {A: 9, B: 20}, False),
        ({A: 9}, {A: 9, B: 20}, False),
        # A query that owns nothing, or starts, goes by the group.
        ({}, {A: 10, B: 20}, True),
        ({}, {A: 9, B: 20}, False),
    ],
)
def test_a_query_rests_when_the_group_has_committed_every_boundary(positions, committed, rests):
    assert is_at_rest(halt(HaltKind.STOP, a=10, b=20), positions, committed) is rests


def test_a_refused_lookup_keeps_the_halt_and_the_next_trigger_looks_again(monkeypatch):
    answers = iter([halt(HaltKind.PAUSE), AuthenticationError("refused"), None])

    async def fetch(*_: object) -> Halt | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(standstill, "fetch_newest_halt", fetch)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.group.id": "billing"}
    query = Standstill(read_options(given, Where.STREAM), Mock(Offsets))
    halted = []
    for _ in range(3):
        query.look()
        halted.append(query.is_halted)
    assert halted == [True, True, False]
