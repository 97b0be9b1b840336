"""Offsets in checkpoints of an earlier version mean the same micro-batches; `tests/kept/generate.py` made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.plan import bundles, plan
from tests.kept.restore import KEPT

FILES = sorted(KEPT.glob("*/*/checkpoint/offsets/*"))
PENDING = sorted(case for case in KEPT.glob("*/*/case.json") if json.loads(case.read_text(encoding="utf-8"))["tasks"])


def name(path: Path) -> str:
    return "-".join(path.relative_to(KEPT).parts[:2] + path.parts[-1:])


def offset(path: Path) -> dict[str, Any]:
    """The source's offset in a file of Spark's log."""
    return dict(json.loads(path.read_text(encoding="utf-8").splitlines()[-1]))


def test_all_cases_are_there() -> None:
    assert len(FILES) == 52
    assert len(PENDING) == 10


@pytest.mark.parametrize("path", FILES, ids=name)
def test_an_offset_is_read_and_would_be_written_the_same(path: Path) -> None:
    kept = offset(path)
    # Spark shows the figures of quota and driver in the query's progress; nobody reads them from the checkpoint.
    read = {key: value for key, value in kept.items() if key not in ("quota", "metrics")}
    assert StreamOffset.from_json(kept).to_json() == read


@pytest.mark.parametrize("case", PENDING, ids=name)
def test_a_pending_batch_is_planned_as_its_tasks_read_it_before(case: Path) -> None:
    start, end = (
        StreamOffset.from_json(offset(case.parent / "checkpoint" / "offsets" / str(batch))) for batch in (1, 2)
    )
    tasks = [
        sorted([r.topic, r.partition, r.start, r.end] for _, ranges in bundle for r in ranges)
        for bundle in bundles(plan(end, start), end.task_records)
    ]
    assert tasks == json.loads(case.read_text(encoding="utf-8"))["tasks"]
