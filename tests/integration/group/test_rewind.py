"""A group is rewound while its queries run, or while it is stopped: where they continue, and what is refused.

Which offset counts is decided without a broker: `tests/unit/source/test_decision.py`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

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
from kafkagroup import pinned
from kafkagroup.admin import Groups, RunningRewind, rewind_running_group, running_group
from tests.support.memberships import leave, rejoin_until_joined
from tests.support.queries import Job, Pipe
from tests.support.records import create_again, delete_before, produce, reader
from tests.support.rewinding import COUNT, PARTITIONS, Runner, Streams, all_committed, covered, ends
from tests.support.waiting import wait_until, wait_until_committed


@pytest.fixture
def name(topic) -> str:
    made: str = topic("rewound", partitions=PARTITIONS, records=COUNT)
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


def refused(settings: Settings, group: str, name: str, told: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"(?s)Group {group} .*{told}"):
        rewind_running_group(settings, group, {TopicPartition(name, 0): 0}, timeout=30)


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


def _as_json(name: str, offset: int) -> str:
    ends = ", ".join(f'"{number}": {offset}' for number in range(PARTITIONS))
    return f'{{"{name}": {{{ends}}}}}'


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


def test_the_sinks_offsets_are_rewound_with_the_output_to_follow(kafka, settings, topic, groups, name, group):
    with closing(Pipe(kafka.bootstrap_servers, name, topic("rewound-out"), group, f"{group}-pipe")) as pipe:
        wait_until(lambda: pipe.whole_batch() == -1, "everything to be written")
        last = ends(groups, name)
        written = list(pipe.read)
        offsets = {TopicPartition(name, 0): 0}
        with ThreadPoolExecutor(1) as pool:
            rewinding = pool.submit(rewind_running_group, settings, group, offsets, timeout=60)
            wait_until(lambda: pipe.whole_batch() >= 0 or rewinding.done(), "the rewind")
            rewinding.result()
        wait_until(lambda: pipe.whole_batch() == -1, "everything to be written again")
        assert len(pipe.read) == sum(last[tp] for tp in offsets)
        assert len(written) == COUNT
        assert groups.committed(group) == last


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


def test_queries_whose_copies_all_emit_are_left_alone(settings, name, group, run):
    redundant = {"kafka_partition_assignment_strategy": "redundant", "redundant_emit": "all"}
    runner = run(**redundant)
    wait_until(lambda: runner.read, "the query")
    refused(settings, group, name, "redundant.emit=all")


def test_a_group_without_members_is_left_to_the_plain_call(settings, name, group):
    refused(settings, group, name, "no members.*Groups.rewind")


@pytest.mark.parametrize(("partition", "offset", "told"), [(0, 10_000, "no offset 10000"), (77, 0, "does not exist")])
def test_an_offset_that_does_not_exist_is_refused(settings, name, group, partition, offset, told):
    with pytest.raises(InvalidConfigurationError, match=told):
        rewind_running_group(settings, group, {TopicPartition(name, partition): offset})


def test_nothing_changes_if_a_micro_batch_takes_too_long(settings, groups, name, group, planner):
    with closing(planner()) as busy:
        end = busy.next(StreamOffset(), limited=True)
        busy.tasks(StreamOffset(), end)
        wait_until_committed(groups, group, dict.fromkeys(ends(groups, name), 0))
        before = groups.committed(group)
        with pytest.raises(RetriableError, match="Nothing was changed"):
            rewind_running_group(settings, group, {TopicPartition(name, 0): 1}, timeout=2)
        assert groups.committed(group) == before
        # The batch is durable now. The group waits for nobody.
        wait_until(lambda: busy.next(end, limited=True) is end, "nothing more to read")
        assert groups.committed(group) == ends(groups, name)


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
    all_committed(groups, group, name, runner)
    assert [line for line in caplog.messages if "the group's offsets are being set, no member reads" in line]
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

    with closing(client), closing(query):
        first = query.next(StreamOffset(), limited=True)
        query.tasks(StreamOffset(), first)
        produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
        rewinding = client.loop.spawn(rewind_again_and_again())
        wait_until(query.rebalance_due, "the first rewind to begin")
        assert query.next(first, limited=True).ends == ends(groups, name)
        assert member.status.state is State.LEFT
        rewinding.result(60)


@pytest.mark.parametrize("at_check", [False, True])
def test_the_offsets_of_a_topic_that_is_created_again_meanwhile_are_not_set(
    kafka, settings, groups, members, topic, group, monkeypatch, at_check
):
    name = topic("again", partitions=1, records=COUNT)

    def create_it_again(*_):
        kafka.delete_topic(name)
        create_again(kafka, name, 1)

    if at_check:
        monkeypatch.setattr(running_group, "_check_exist", create_it_again)
    reading = members.make(name, slots=1)
    reading.join(30)
    with ThreadPoolExecutor(1) as pool:
        rewinding = pool.submit(rewind_running_group, settings, group, {TopicPartition(name, 0): 2}, timeout=60)
        if not at_check:
            wait_until(reading.rebalance_needed, "the program to join")
            create_it_again()
        with pytest.raises(ApplicationRecoverableError, match="created again"):
            rejoin_until_joined(reading, rewinding)
    assert groups.committed(group) == {}


def test_an_offset_that_is_deleted_meanwhile_is_not_set(kafka, settings, groups, members, name, group):
    tp = TopicPartition(name, 0)
    reading = members.make(name, slots=1)
    reading.join(30)
    with ThreadPoolExecutor(1) as pool:
        rewinding = pool.submit(rewind_running_group, settings, group, {tp: 2}, timeout=60)
        wait_until(reading.rebalance_needed, "the program to join")
        delete_before(kafka, name, {0: 5})
        reading.rejoin(60)
        with pytest.raises(InvalidConfigurationError, match=f"{name}-0 has no offset 2; it takes one from 5 to"):
            rewinding.result(60)
    assert groups.committed(group) == {}


@pytest.mark.parametrize("assigned", [False, True])
def test_a_query_continues_where_its_stopped_group_was_rewound(streams, groups, group, name, last, assigned):
    assign = {"assign": f'{{"{name}": {[*range(PARTITIONS)]}}}'} if assigned else {}
    offset = finished(streams, groups, group, name, **assign)
    target = dict.fromkeys(last, 2)
    groups.rewind(group, target)
    again = streams.run(offset, **assign)
    read_from(again, target, last)
    all_committed(groups, group, name, again)
    # Its next start has nothing to read again.
    offset = stopped(again)
    with closing(streams.planner(**assign)) as third:
        assert third.next(offset, limited=True) is offset


@pytest.mark.parametrize("tasks_committed", [False, True])
def test_a_replay_reads_up_to_the_rewind_of_a_group_whose_tasks_commit(kafka, group, groups, name, tasks_committed):
    """A driver dies in its second batch; the rewind goes into it."""
    job = Job(kafka, group, subscribe=name, commit="task", maxOffsetsPerTrigger=10 * PARTITIONS)
    first = job.planner()
    for number in range(2):
        job.offsets.append(first.next(job.offsets[-1], limited=number == 0))
        if number == 0 or tasks_committed:
            job.read(first, *job.offsets[-2:])
    first.close()
    batch = job.offsets[-1].partitions
    produce(kafka.bootstrap_servers, name, 1000 * PARTITIONS, first=COUNT)
    targets = {tp: span.start + 10 for tp, span in batch.items()}
    groups.rewind(group, targets)
    with closing(job.planner()) as again:
        bundles = again.tasks(*job.offsets[-2:])
        read = {r.topic_partition: (r.start, r.end) for one in bundles for task in one.tasks for r in task.ranges}
        assert read == {tp: (s.start, min(s.end, targets[tp])) for tp, s in batch.items()}
        job.read(again, *job.offsets[-2:])
        assert groups.committed(group) == targets
        following = again.next(job.offsets[-1], limited=True)
        assert {tp: span.start for tp, span in following.partitions.items()} == targets


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
    wait_until_committed(groups, group, dict.fromkeys(last, 4))
    wait_until(lambda: groups.states()[group] == "Empty", "an empty group")
    read_from(streams.run(offset), dict.fromkeys(last, 4), ends(groups, name))


def test_a_member_that_was_away_while_its_group_was_deleted_and_read_goes_on_behind_that(
    kafka, streams, settings, groups, group, name, last
):
    query = streams.planner(group_members=1, maxOffsetsPerTrigger=COUNT // 4)

    def removed(start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The batch was planned, and then the group has removed the member."""
        leave(settings, query.tasks(start, end)[0].tasks[0].credentials)
        wait_until(query.rebalance_due, "the query to notice")
        return end

    with closing(query):
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
