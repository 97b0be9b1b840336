"""Which slots a task verifies, and that it yields no record before they are known to be held."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.commits import attached
from kafka_source.commits.attached import check_dispensable
from kafka_source.commits.rights import SlotSession
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, FencedError, KafkaGroupError, RetriableError
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import Range
from kafka_source.source import read_task
from kafka_source.source.read_task import Query, ReadTask, TaskBundle, read_bundle
from tests.support.queries import query_of

BATCH = pa.record_batch({"value": [b"x"]})


def query(**options: str) -> Query:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.group.id": "g", **options}
    return query_of(given)


@pytest.mark.parametrize("batches", [[BATCH], []])
def test_a_fenced_task_yields_nothing_and_fails_also_without_records(
    monkeypatch: pytest.MonkeyPatch, batches: list[pa.RecordBatch]
) -> None:
    fetched = []

    def fetch() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fetched.append(batch)
            yield batch

    refused: Future[list[KafkaGroupError]] = Future()
    refused.set_result([FencedError("another process has the slot", code=ErrorCode.FENCED_INSTANCE_ID)])
    monkeypatch.setattr(SlotSession, "attach_all", lambda *_: refused)
    monkeypatch.setattr(read_task, "_batches", lambda *_: fetch())
    task = ReadTask((Range("t", 0, 0, 1),), SlotCredentials("g", 3, "member", "instance"))
    with pytest.raises(FencedError):
        next(read_bundle(TaskBundle((task,)), query()))
    # It was fetched while the coordinator was asked.
    assert len(fetched) == len(batches)


@pytest.mark.parametrize(("alone", "verified"), [(False, [1]), (True, [1, 2, 3])])
def test_a_task_verifies_one_slot_of_a_generation_and_each_one_that_has_an_epoch_of_its_own(
    monkeypatch: pytest.MonkeyPatch, alone: bool, verified: list[int]
) -> None:
    asked: list[list[int]] = []

    def attach_all(_: Settings, slots: Sequence[SlotCredentials], *__: object) -> Future[list[SlotSession]]:
        asked.append([one.slot for one in slots])
        done: Future[list[SlotSession]] = Future()
        done.set_result([])
        return done

    monkeypatch.setattr(SlotSession, "attach_all", attach_all)
    monkeypatch.setattr(read_task, "_batches", lambda *_: iter([BATCH]))
    slots = [
        SlotCredentials("g", 3, f"member-{number}", f"i-{number}", number, per_member_epoch=alone)
        for number in (3, 1, 2)
    ]
    tasks = tuple(ReadTask((Range("t", one.slot, 0, 1),), one) for one in slots)
    assert list(read_bundle(TaskBundle(tasks), query())) == [BATCH]
    assert asked == [verified]


@pytest.mark.parametrize(
    ("problem", "options", "commits", "fails"),
    [
        (RetriableError("no answer"), {}, False, False),
        (RetriableError("no answer"), {}, True, True),
        (FencedError("later", code=ErrorCode.ILLEGAL_GENERATION), {"group.on.lost": "stop"}, False, False),
        (FencedError("later", code=ErrorCode.ILLEGAL_GENERATION), {}, True, True),
        (FencedError("removed", code=ErrorCode.UNKNOWN_MEMBER_ID), {}, False, False),
        (FencedError("removed", code=ErrorCode.UNKNOWN_MEMBER_ID), {"group.on.lost": "stop"}, False, True),
        (FencedError("taken", code=ErrorCode.FENCED_INSTANCE_ID), {}, False, True),
        (FencedError("joined again", code=ErrorCode.FENCED_INSTANCE_ID), {"commit": "sink"}, False, False),
        (
            FencedError("taken", code=ErrorCode.FENCED_INSTANCE_ID),
            {"commit": "sink", "group.on.lost": "stop"},
            False,
            True,
        ),
        (AuthenticationError("no right"), {}, False, True),
    ],
)
def test_a_task_that_only_reads_can_do_without_a_slot_that_nobody_has_taken(
    problem: KafkaGroupError, options: dict[str, str], commits: bool, fails: bool
) -> None:
    with pytest.raises(type(problem)) if fails else nullcontext():
        asked = query(**options)
        check_dispensable(problem, asked.options, is_output=asked.new_policy().is_output, commits=commits)


def test_a_coordinator_that_does_not_answer_does_not_fail_a_task_that_only_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: Future[list[SlotSession]] = Future()
    monkeypatch.setattr(SlotSession, "attach_all", lambda *_: waiting)
    monkeypatch.setattr(read_task, "_batches", lambda *_: iter([BATCH]))
    monkeypatch.setattr(attached, "_ATTACH_SECONDS", -0.9)
    slot = SlotCredentials("g", 3, "member", "instance")
    assert list(read_bundle(TaskBundle((ReadTask((Range("t", 0, 0, 1),), slot),)), query())) == [BATCH]
    # Nobody waits for the answer any more.
    assert waiting.cancelled()
