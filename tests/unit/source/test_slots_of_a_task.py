"""A task yields no record before its slots are known to be held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from kafka_source.errors import FencedError
from kafka_source.group.slot_session import SlotSession
from kafka_source.source.read_task import _while_held

BATCH = pa.record_batch({"value": [b"x"]})


def fenced() -> Sequence[SlotSession]:
    raise FencedError("another process has the slot")


@pytest.mark.parametrize("batches", [[BATCH], []])
def test_a_fenced_task_yields_nothing_and_fails_also_without_records(batches: list[pa.RecordBatch]) -> None:
    fetched = []

    def fetch() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fetched.append(batch)
            yield batch

    with pytest.raises(FencedError):
        next(_while_held(fenced, fetch()))
    # It was fetched while the coordinator was asked.
    assert len(fetched) == len(batches)
