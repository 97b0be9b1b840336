"""A group is rewound while its queries run: each record after the new position is read again, and nothing is mixed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError, InvalidConfigurationError, RetriableError
from kafka_source.group.classic import strategies
from kafka_source.group.classic.member import Member, MemberSettings
from kafka_source.group.classic.member_state import State
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.admin import Groups, RunningRewind, rewind_running_group
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import everything
from tests.support.queries import Pipe
from tests.support.records import create_again, produce
from tests.support.rewinding import (
    COUNT,
    PARTITIONS,
    Runner,
    all_committed,
    check_replayed_then_read_again,
    covered,
    ends,
)
from tests.support.waiting import wait_until


@pytest.fixture
def name(kafka, topic) -> str:
    made: str = topic("rewound", partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, made, COUNT)
    return made


@pytest.fixture
def planner(streams) -> Callable[..., MicroBatches]:
    return streams.planner


@pytest.fixture
def run(streams) -> Callable[..., Runner]:
    """Runs queries of the group; `start` is the checkpoint, the other arguments are options."""
    return streams.run


def both_reading(kafka, groups: Groups, group: str, name: str, first: Runner, second: Runner) -> None:
    """Wait until two queries share the group, and let both read something."""

    def shared() -> bool:
        for one in (first, second):
            one.check()
        if group not in groups.states():
            return False
        members = groups.describe(group).members
        return len(members) == PARTITIONS and all(len(member.partitions) == 1 for member in members)

    wait_until(shared, "the queries to share the partitions")
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    all_committed(groups, group, name, first, second)
    assert first.read
    assert second.read


def test_all_partitions_of_two_queries_are_read_again(kafka, settings, groups, name, group, run, caplog):
    first, second = run(), run()
    both_reading(kafka, groups, group, name, first, second)
    last = ends(groups, name)
    before = {id(one): len(one.read) for one in (first, second)}
    done = rewind_running_group(settings, group, dict.fromkeys(last, 0), timeout=60)
    assert isinstance(done, RunningRewind)
    assert (done.before, done.offsets) == (last, dict.fromkeys(last, 0))

    def again(tp: TopicPartition) -> list[tuple[int, int]]:
        new = [r for one in (first, second) for r in one.read[before[id(one)] :]]
        return sorted((r.start, r.end) for r in new if r.topic_partition == tp)

    wait_until(lambda: all(covered(again(tp), 0, end) for tp, end in last.items()), "everything to be read again")
    all_committed(groups, group, name, first, second)
    told = {line for line in caplog.messages if line.startswith("rewound ")}
    assert told == {f"rewound {tp.topic}-{tp.partition} from={end} to=0" for tp, end in last.items()}
    # It was read once more, and only once.
    assert all(covered(again(tp), 0, end) for tp, end in last.items())


def test_other_partitions_continue_where_they_are(kafka, settings, groups, name, group, run):
    runner = run()
    all_committed(groups, group, name, runner)
    old = ends(groups, name)
    rewound, *others = everything(name, PARTITIONS)
    rewind_running_group(settings, group, {rewound: 3}, timeout=60)
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    all_committed(groups, group, name, runner)
    new = ends(groups, name)
    assert all(covered(runner.ranges(tp), 0, new[tp]) for tp in others)
    first = [pair for pair in runner.ranges(rewound) if pair[1] <= old[rewound] and pair[0] != 3]
    again = [pair for pair in runner.ranges(rewound) if pair not in first]
    assert covered(first, 0, old[rewound])
    assert covered(again, 3, new[rewound])


def test_a_rewind_may_go_forward(kafka, settings, groups, name, group, run):
    runner = run(maxOffsetsPerTrigger=8)
    wait_until(lambda: runner.read, "the first records")
    last = ends(groups, name)
    rewind_running_group(settings, group, last, timeout=60)
    all_committed(groups, group, name, runner)
    assert sum(high - low for tp in last for low, high in runner.ranges(tp)) < COUNT


def test_a_restart_does_not_rewind_again(settings, groups, name, group, run):
    runner = run(maxOffsetsPerTrigger=40)
    all_committed(groups, group, name, runner)
    last = ends(groups, name)
    rewind_running_group(settings, group, dict.fromkeys(last, 0), timeout=60)
    seen = len(runner.read)
    wait_until(lambda: len(runner.read) > seen, "the first records again")
    runner.close()
    again = run(StreamOffset.from_json(runner.offset.to_json()))
    all_committed(groups, group, name, again)
    for tp, end in last.items():
        assert covered([*runner.ranges(tp), *again.ranges(tp)][-len(again.ranges(tp)) :], runner.offset.ends[tp], end)


def test_a_query_that_was_stopped_follows_the_rewind_when_it_starts_again(kafka, settings, groups, name, group, run):
    stopped, running = run(), run(maxOffsetsPerTrigger=20)
    both_reading(kafka, groups, group, name, stopped, running)
    last = ends(groups, name)
    stopped.close()
    theirs = sorted(stopped.offset.ends)
    rewind_running_group(settings, group, dict.fromkeys(last, 2), timeout=60)
    seen = len(running.read)
    wait_until(lambda: len(running.read) > seen + 2 * PARTITIONS, "some records again")
    running.close()
    # The other query has committed since then; its commits say that the group was rewound.
    committed = groups.committed(group)
    assert all(2 <= committed[tp] < last[tp] for tp in theirs)
    again = run(StreamOffset.from_json(stopped.offset.to_json()))
    all_committed(groups, group, name, again)
    assert all(covered(again.ranges(tp), committed[tp], last[tp]) for tp in theirs)


def test_a_query_whose_tasks_commit_follows_the_rewind(settings, groups, name, group, run):
    runner = run(commit="task")
    last = ends(groups, name)
    wait_until(lambda: all(covered(runner.ranges(tp), 0, end) for tp, end in last.items()), "everything to be read")
    rewind_running_group(settings, group, dict.fromkeys(last, 1), timeout=60)
    wait_until(lambda: all((1, end) in runner.ranges(tp) for tp, end in last.items()), "everything to be read again")


@pytest.mark.parametrize("partitions", [range(PARTITIONS), range(1)])
def test_the_sinks_offsets_are_rewound_with_the_output_to_follow(
    kafka, settings, topic, groups, name, group, partitions
):
    pipe = Pipe(kafka.bootstrap_servers, name, topic("rewound-out"), group, f"{group}-pipe")
    try:
        wait_until(lambda: pipe.whole_batch() == -1, "everything to be written")
        last = ends(groups, name)
        written = list(pipe.read)
        offsets = {TopicPartition(name, number): 0 for number in partitions}
        with ThreadPoolExecutor(1) as pool:
            rewinding = pool.submit(rewind_running_group, settings, group, offsets, timeout=60)
            wait_until(lambda: pipe.whole_batch() >= 0 or rewinding.done(), "the rewind")
            rewinding.result()
        wait_until(lambda: pipe.whole_batch() == -1, "everything to be written again")
        assert len(pipe.read) == sum(last[tp] for tp in offsets)
        assert len(written) == COUNT
        assert groups.committed(group) == last
    finally:
        pipe.close()


def test_a_batch_that_was_planned_before_the_rewind_does_not_undo_it(kafka, settings, topic, groups, name, group, run):
    """The sink's query dies between planning and deciding; another query of the group is there while it is rewound."""
    pipe = Pipe(kafka.bootstrap_servers, name, topic("rewound-out"), group, f"{group}-pipe", maxOffsetsPerTrigger=40)
    pipe.whole_batch()
    pipe.batch()
    pipe.close()
    other = run(commit="task")
    wait_until(lambda: other.read, "the other query")
    rewind_running_group(settings, group, dict.fromkeys(everything(name, PARTITIONS), 0), timeout=60)
    other.close()
    check_replayed_then_read_again(pipe, groups, group)


def test_a_replayed_batch_whose_tasks_commit_ends_where_partitions_were_rewound(
    settings, groups, name, group, planner, run
):
    first = planner(commit="task")
    end = first.next(StreamOffset(), limited=True)
    first.close()
    other = run(commit="task")
    wait_until(lambda: other.read, "the other query")
    rewound = {TopicPartition(name, number): 1 for number in range(2)}
    rewind_running_group(settings, group, rewound, timeout=60)
    other.close()
    again = planner(commit="task")
    try:
        tasks = again.tasks(StreamOffset(), StreamOffset.from_json(end.to_json()))
        read = {r.topic_partition: r.end for bundle in tasks for task in bundle.tasks for r in task.ranges}
        last = ends(groups, name)
        assert read == {**last, **rewound}
        new = again.next(end, limited=True)
        starts = {tp: (span.start, span.end) for tp, span in new.partitions.items()}
        assert all(starts[tp] == ((1, last[tp]) if tp in rewound else (last[tp], last[tp])) for tp in last)
    finally:
        again.close()


def test_a_replayed_batch_whose_tasks_commit_commits_nothing_of_partitions_that_others_own(name, planner, run):
    first = planner(commit="task")
    end = StreamOffset.from_json(first.next(StreamOffset(), limited=True).to_json())
    first.close()
    other = run(commit="task")
    wait_until(lambda: other.read, "the other query")
    again = planner(commit="task")
    try:
        tasks = [task for bundle in again.tasks(StreamOffset(), end) for task in bundle.tasks]
        owned = {tp for task in tasks if task.credentials for tp in task.credentials.partitions}
        others = set(everything(name, PARTITIONS)) - owned
        assert owned
        assert others
        assert set().union(*(task.uncommitted for task in tasks)) == others
    finally:
        again.close()


def refused(settings: Settings, group: str, name: str, told: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"(?s)Group {group} .*{told}"):
        rewind_running_group(settings, group, {TopicPartition(name, 0): 0}, timeout=30)


def test_a_group_with_a_consumer_of_another_client_is_left_alone(kafka, settings, groups, name, group, run):
    runner = run()
    all_committed(groups, group, name, runner)
    other = ConfluentConsumer(kafka.bootstrap_servers, group, name)
    try:
        wait_until(lambda: other.assigned, "partitions for the other client")
        before = groups.committed(group)
        refused(settings, group, name, "cannot be rewound while it runs: it has members of other clients.*rdkafka")
        assert groups.committed(group) == before
    finally:
        other.close()


def test_a_query_of_the_consumer_protocol_is_rewound_as_the_refusal_says(settings, groups, name, group, run):
    runner = run(kafka_group_protocol="consumer")
    all_committed(groups, group, name, runner)
    last = ends(groups, name)
    refused(settings, group, name, "members of the consumer protocol.*stop all members, rewind the stopped group")
    assert groups.committed(group) == last
    runner.close()
    groups.rewind(group, dict.fromkeys(last, 1))
    again = run(StreamOffset.from_json(runner.offset.to_json()), kafka_group_protocol="consumer")
    all_committed(groups, group, name, again)
    assert all(covered(again.ranges(tp), 1, end) for tp, end in last.items())


def test_queries_whose_copies_all_emit_are_left_alone(settings, groups, name, group, run):
    redundant = {"kafka_partition_assignment_strategy": "redundant", "redundant_emit": "all"}
    runner = run(**redundant)
    wait_until(lambda: runner.read, "the query")
    refused(settings, group, name, "redundant.emit=all")


def test_primaries_of_a_redundant_group_are_rewound(settings, groups, name, group, run):
    runner = run(kafka_partition_assignment_strategy="redundant")
    all_committed(groups, group, name, runner)
    last = ends(groups, name)
    rewind_running_group(settings, group, dict.fromkeys(last, 1), timeout=60)
    wait_until(lambda: all((1, end) in runner.ranges(tp) for tp, end in last.items()), "everything to be read again")


def test_a_group_without_members_is_left_to_the_plain_call(settings, name, group):
    refused(settings, group, name, "no members.*Groups.rewind")


@pytest.mark.parametrize(("partition", "offset", "told"), [(0, 10_000, "no offset 10000"), (77, 0, "does not exist")])
def test_an_offset_that_does_not_exist_is_refused(settings, name, group, partition, offset, told):
    with pytest.raises(InvalidConfigurationError, match=told):
        rewind_running_group(settings, group, {TopicPartition(name, partition): offset})


def test_nothing_changes_if_a_micro_batch_takes_too_long(settings, groups, name, group, planner):
    busy = planner()
    try:
        end = busy.next(StreamOffset(), limited=True)
        busy.tasks(StreamOffset(), end)
        before = groups.committed(group)
        with pytest.raises(RetriableError, match="Nothing was changed"):
            rewind_running_group(settings, group, {TopicPartition(name, 0): 1}, timeout=2)
        assert groups.committed(group) == before
        # The batch is durable now. The group waits for nobody.
        wait_until(lambda: busy.next(end, limited=True) is end, "nothing more to read")
        assert groups.committed(group) == ends(groups, name)
    finally:
        busy.close()


def test_queries_continue_if_the_program_that_rewinds_dies(kafka, settings, groups, name, group, run, caplog):
    runner = run()
    all_committed(groups, group, name, runner)
    client = KafkaClient(settings)
    member = Member(client, MemberSettings(group, session_timeout_ms=6_000, rebalance_timeout_ms=60_000))

    async def lead(joined):
        return strategies.lead(joined.members)

    client.run(member.join(strategies.rewind_offers(["range"]), lead, Deadline(60)), 61)
    # Its generation has begun, and now it is gone without a word.
    member.close()
    client.close()
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    started = time.monotonic()
    all_committed(groups, group, name, runner)
    assert time.monotonic() - started < 30
    assert [line for line in caplog.messages if "the group's offsets are being set, nobody reads" in line]
    assert all(covered(runner.ranges(tp), 0, end) for tp, end in ends(groups, name).items())


def test_nobody_reads_during_rewinds_however_many_there_are(kafka, settings, groups, name, group, planner):
    query, client = planner(group_members=1), KafkaClient(settings)
    member = Member(client, MemberSettings(group, session_timeout_ms=6_000, rebalance_timeout_ms=60_000))

    async def lead(joined):
        return strategies.lead(joined.members)

    async def rewind_again_and_again():
        for number in range(12):
            # A member that joins again with other metadata begins a generation.
            ((name_of_rewind, subscription),) = strategies.rewind_offers(["range"])
            await member.join([(name_of_rewind, subscription + bytes([number]))], lead, Deadline(60))
        await member.leave(Deadline(10))

    try:
        first = query.next(StreamOffset(), limited=True)
        query.tasks(StreamOffset(), first)
        produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
        rewinding = client.loop.spawn(rewind_again_and_again())
        wait_until(query.rebalance_due, "the first rewind to begin")
        assert query.next(first, limited=True).ends == ends(groups, name)
        assert member.status.state is State.LEFT
        rewinding.result(60)
    finally:
        query.close()
        client.close()


def test_the_offsets_of_a_topic_that_is_created_again_meanwhile_are_not_set(
    kafka, settings, groups, members, topic, group
):
    name = topic("again", partitions=1)
    produce(kafka.bootstrap_servers, name, COUNT)
    reading = members.make(name, slots=1)
    reading.join(30)
    with ThreadPoolExecutor(1) as pool:
        rewinding = pool.submit(rewind_running_group, settings, group, {TopicPartition(name, 0): 2}, timeout=60)
        wait_until(reading.rebalance_needed, "the program to join")
        kafka.delete_topic(name)
        create_again(kafka, name, 1)
        reading.rejoin(60)
        with pytest.raises(ApplicationRecoverableError, match="created again"):
            rewinding.result(60)
    assert groups.committed(group) == {}
