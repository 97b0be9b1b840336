"""A stopped group is rewound, or a rewind was never followed before it stopped: where its queries continue."""

from __future__ import annotations

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.model.stream_offset import StreamOffset
from kafkagroup import pinned
from kafkagroup.admin import Groups, rewind_running_group
from tests.support.memberships import everything, leave
from tests.support.queries import Job, Pipe
from tests.support.records import produce, reader
from tests.support.rewinding import (
    COUNT,
    PARTITIONS,
    Runner,
    Streams,
    all_committed,
    check_replayed_then_read_again,
    covered,
    ends,
)
from tests.support.waiting import wait_until


@pytest.fixture
def name(kafka, topic) -> str:
    made: str = topic("stopped", partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, made, COUNT)
    return made


@pytest.fixture
def last(groups, name) -> dict[TopicPartition, int]:
    """Where the topic ends."""
    return ends(groups, name)


def stopped(one: Runner) -> StreamOffset:
    """The checkpoint of a query, which is stopped."""
    one.close()
    return StreamOffset.from_json(one.offset.to_json())


def finished(streams: Streams, groups: Groups, group: str, name: str, **options: object) -> StreamOffset:
    """The checkpoint of a query that has read everything, and was stopped."""
    runner = streams.run(None, **options)
    all_committed(groups, group, name, runner)
    return stopped(runner)


def read_from(runner: Runner, starts: dict[TopicPartition, int], last: dict[TopicPartition, int]) -> None:
    """Wait until a query has read everything from these offsets on, once."""

    def whole() -> bool:
        runner.check()
        return all(covered(runner.ranges(tp), starts[tp], end) for tp, end in last.items())

    wait_until(whole, f"everything from {starts} on to be read")


def joined(groups: Groups, group: str, members: int) -> None:
    """Wait until the group has so many members, and is stable."""

    def there() -> bool:
        if group not in groups.states():
            return False
        found = groups.describe(group)
        return found.state == "Stable" and len(found.members) == members

    wait_until(there, f"{members} members")


def never_followed(streams: Streams, settings: Settings, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Rewind the group while another query is in it, one whose tasks do not run; then no query runs."""
    other = streams.run(commit="task")
    joined(Groups(settings), group, 2)
    rewind_running_group(settings, group, offsets, timeout=60)
    other.close()


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_query_continues_where_its_stopped_group_was_rewound(
    streams, groups, group, name, last, checkpoint, assigned
):
    assign = {"assign": f'{{"{name}": {[*range(PARTITIONS)]}}}'} if assigned else {}
    offset = finished(streams, groups, group, name, **assign)
    target = dict.fromkeys(last, 2)
    groups.rewind(group, target)
    again = streams.run(offset if checkpoint else None, **assign)
    read_from(again, target, last)
    all_committed(groups, group, name, again)
    # Its next start has nothing to read again.
    offset = stopped(again)
    third = streams.planner(**assign)
    try:
        assert third.next(offset, limited=True) is offset
    finally:
        third.close()


def test_a_query_with_a_checkpoint_can_be_left_where_it_is(kafka, streams, groups, group, name, last):
    offset = finished(streams, groups, group, name)
    groups.rewind(group, dict.fromkeys(last, 2), checkpoints_follow=False)
    again = streams.run(offset)
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    read_from(again, last, ends(groups, name))


def test_the_last_rewind_counts_if_the_one_before_was_never_followed(streams, settings, groups, group, name, last):
    offset = finished(streams, groups, group, name)
    never_followed(streams, settings, group, dict.fromkeys(last, 0))
    target = dict.fromkeys(last, 5)
    groups.rewind(group, target)
    read_from(streams.run(offset), target, last)


def test_a_commit_of_another_client_ends_a_rewind_that_was_never_followed(
    kafka, streams, settings, groups, group, name, last
):
    offset = finished(streams, groups, group, name)
    never_followed(streams, settings, group, dict.fromkeys(last, 0))
    groups.rewind(group, dict.fromkeys(last, 5), checkpoints_follow=False)
    again = streams.run(offset)
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    read_from(again, last, ends(groups, name))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_rewind_that_was_never_followed_is_followed_at_the_next_start(
    streams, settings, groups, group, name, last, checkpoint
):
    offset = finished(streams, groups, group, name)
    target = dict.fromkeys(last, 3)
    never_followed(streams, settings, group, target)
    again = streams.run(offset if checkpoint else None)
    read_from(again, target, last)
    all_committed(groups, group, name, again)


def test_deleting_the_group_ends_a_rewind_and_the_checkpoint_counts(
    kafka, streams, settings, groups, group, name, last
):
    offset = finished(streams, groups, group, name)
    never_followed(streams, settings, group, dict.fromkeys(last, 0))
    groups.delete(group)
    again = streams.run(offset)
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    read_from(again, last, ends(groups, name))


def test_a_copy_of_the_group_has_the_rewind_too(streams, settings, kafka, groups, group, name, last):
    offset = finished(streams, groups, group, name)
    target = dict.fromkeys(last, 3)
    never_followed(streams, settings, group, target)
    groups.clone(group, f"{group}-copy")
    copy = Streams(kafka, name, f"{group}-copy")
    try:
        read_from(copy.run(offset), target, last)
    finally:
        copy.close()


def test_a_batch_that_was_planned_before_the_rewind_is_not_committed_over_it(
    streams, settings, groups, group, name, last
):
    first = streams.planner()
    end = first.next(StreamOffset(), limited=True)
    first.tasks(StreamOffset(), end)
    first.close()
    target = dict.fromkeys(last, 2)
    groups.rewind(group, target)
    again = streams.planner()
    try:
        # Spark finishes what was planned, as after a crash. The rewind comes after it.
        again.tasks(StreamOffset(), StreamOffset.from_json(end.to_json()))
        following = again.next(end, limited=True)
        assert {tp: (span.start, span.end) for tp, span in following.partitions.items()} == {
            tp: (2, to) for tp, to in last.items()
        }
        assert groups.committed(group) == target
    finally:
        again.close()


def test_a_batch_whose_sink_commits_is_not_written_over_a_rewind(kafka, settings, topic, groups, group, name):
    pipe = Pipe(kafka.bootstrap_servers, name, topic("stopped-out"), group, f"{group}-pipe", maxOffsetsPerTrigger=40)
    pipe.whole_batch()
    pipe.batch()
    pipe.close()
    groups.rewind(group, dict.fromkeys(everything(name, PARTITIONS), 0))
    check_replayed_then_read_again(pipe, groups, group)


@pytest.mark.parametrize("target", [-5, 0, 10, 1000], ids=["before", "its start", "inside", "behind"])
@pytest.mark.parametrize("tasks_committed", [False, True])
def test_a_replay_reads_up_to_the_rewind_of_a_group_whose_tasks_commit(
    kafka, group, groups, name, tasks_committed, target
):
    """A driver dies in its second batch; `target` counts from where that begins."""
    job = Job(kafka, group, subscribe=name, commit="task", maxOffsetsPerTrigger=10 * PARTITIONS)
    first = job.planner()
    for number in range(2):
        job.offsets.append(first.next(job.offsets[-1], limited=number == 0))
        if number == 0 or tasks_committed:
            job.read(first, *job.offsets[-2:])
    first.close()
    batch = job.offsets[-1].partitions
    produce(kafka.bootstrap_servers, name, 1000 * PARTITIONS, first=COUNT)
    targets = {tp: span.start + target for tp, span in batch.items()}
    groups.rewind(group, targets)
    again = job.planner()
    try:
        bundles = again.tasks(*job.offsets[-2:])
        read = {r.topic_partition: (r.start, r.end) for one in bundles for task in one.tasks for r in task.ranges}
        assert read == {tp: (s.start, min(s.end, targets[tp])) for tp, s in batch.items() if target > 0}
        job.read(again, *job.offsets[-2:])
        assert groups.committed(group) == targets
        following = again.next(job.offsets[-1], limited=True)
        assert {tp: span.start for tp, span in following.partitions.items()} == targets
    finally:
        again.close()


@pytest.mark.parametrize("read", ["batch", "pinned"])
def test_a_read_without_a_checkpoint_leaves_the_rewind_to_a_query_that_has_one(
    spark, kafka, streams, settings, groups, group, name, last, read
):
    offset = finished(streams, groups, group, name)
    never_followed(streams, settings, group, dict.fromkeys(last, 2))
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    if read == "batch":
        reader(spark, kafka, name, kafka_group_id=group, commit="task", endingOffsets=_as_json(name, 4)).load().count()
    else:
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "kafka.group.id": group}
        with pinned(spark, {**given, "endingOffsets": _as_json(name, 4)}) as rows:
            assert rows.count() == 2 * PARTITIONS
    wait_until(lambda: groups.committed(group) == dict.fromkeys(last, 4), "the commit")
    wait_until(lambda: groups.states()[group] == "Empty", "an empty group")
    read_from(streams.run(offset), dict.fromkeys(last, 4), ends(groups, name))


def _as_json(name: str, offset: int) -> str:
    ends = ", ".join(f'"{number}": {offset}' for number in range(PARTITIONS))
    return f'{{"{name}": {{{ends}}}}}'


def test_a_member_that_was_away_while_its_group_was_deleted_and_read_goes_on_behind_that(
    kafka, streams, settings, groups, group, name, last
):
    query = streams.planner(group_members=1, maxOffsetsPerTrigger=COUNT // 4)

    def removed(start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The batch was planned, and then the group has removed the member."""
        leave(settings, query.tasks(start, end)[0].tasks[0].credentials)
        wait_until(query.rebalance_due, "the query to notice")
        return end

    try:
        first = removed(StreamOffset(), query.next(StreamOffset(), limited=True))
        second = query.next(first, limited=True)
        removed(first, second)
        groups.delete(group)
        finished(streams, groups, group, name, group_members=1)
        produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
        third = query.next(second, limited=True)
        # The numbers of generations have begun again.
        assert third.generation == second.generation
        assert {tp: span.start for tp, span in third.partitions.items()} == last
        assert groups.committed(group) == last
    finally:
        query.close()
