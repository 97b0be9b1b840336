"""Of a query's position and its group's committed offset the larger one counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_source.source.position_tracker import furthest

known = st.none() | st.integers(0, 100)


@given(known, known)
def test_a_query_never_continues_before_what_it_or_its_group_has_read(position, committed):
    found = furthest(position, committed)
    assert (found is None) == (position is None and committed is None)
    assert found in (position, committed)
    assert all(offset is None or (found is not None and offset <= found) for offset in (position, committed))
