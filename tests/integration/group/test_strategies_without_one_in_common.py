"""Streams whose strategies have nothing in common: one side is refused in words, the other one reads on."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from assignors import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafkagroup.admin import Groups, rewind_running_group
from tests.apps.process import java_consumer
from tests.support.memberships import everything, held, members_of, rejoin_until_joined
from tests.support.records import produce
from tests.support.rewinding import COUNT, PARTITIONS, Runner, Streams, all_committed, covered, ends
from tests.support.waiting import wait_until

REFUSED_WITHIN = 30.0


@pytest.fixture
def name(topic) -> str:
    made: str = topic("strategies", partitions=PARTITIONS, records=COUNT)
    return made


def refusal_of(streams: Streams, runner: Runner) -> str:
    """Return the text of the error with which a stream is refused."""
    error = streams.error_of(runner, REFUSED_WITHIN)
    assert isinstance(error, InvalidConfigurationError), error
    assert runner.read == []
    return str(error)


def reads_on(kafka, groups: Groups, group: str, name: str, runner: Runner) -> None:
    """Check that a stream reads new records, and that it has read every record once."""
    produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
    all_committed(groups, group, name, runner)
    last = ends(groups, name)
    assert all(covered(runner.ranges(tp), 0, last[tp]) for tp in everything(name, PARTITIONS))


@pytest.mark.parametrize(
    ("theirs", "ours", "slots"),
    [("range", "sticky", 2), ("range", "cooperative-sticky", 1), ("cooperative-sticky,range", "copartition", 3)],
)
def test_a_stream_with_another_strategy_is_refused_and_the_group_reads_on(
    kafka, groups, name, group, streams, theirs, ours, slots
):
    reading = streams.run(kafka_partition_assignment_strategy=theirs)
    all_committed(groups, group, name, reading)
    before = members_of(kafka, group)
    refused = streams.run(kafka_partition_assignment_strategy=ours, group_members=slots)
    assert f"do not all support one of {ours}" in refusal_of(streams, refused)
    assert members_of(kafka, group) == before
    reads_on(kafka, groups, group, name, reading)


def test_of_two_streams_that_start_together_one_is_refused(kafka, groups, name, group, streams):
    both = [streams.run(kafka_partition_assignment_strategy=s, group_members=3) for s in ("range", "sticky")]

    def one_ended() -> bool:
        return any(runner.ended for runner in both)

    wait_until(one_ended, "one of the two to be refused", REFUSED_WITHIN)
    (refused,) = [runner for runner in both if runner.ended]
    (reading,) = [runner for runner in both if not runner.ended]
    refusal_of(streams, refused)
    all_committed(groups, group, name, reading)
    reads_on(kafka, groups, group, name, reading)
    assert len(members_of(kafka, group)) == 3


def test_a_pattern_is_refused_too_and_refuses_others(kafka, groups, name, group, streams):
    reading = streams.run(subscribePattern=f"^{name}$", kafka_partition_assignment_strategy="range")
    all_committed(groups, group, name, reading)
    refused = streams.run(subscribePattern=f"^{name}$", kafka_partition_assignment_strategy="sticky")
    refusal_of(streams, refused)
    reads_on(kafka, groups, group, name, reading)


@pytest.mark.parametrize("rewinds", [True, False])
def test_a_newcomer_is_refused_at_once_while_the_others_are_in_a_long_batch(kafka, members, name, group, rewinds):
    # It never rejoins, as in a micro-batch of an hour.
    reading = members.make(name, app="a", slots=2)
    reading.join(30)
    with pytest.raises(InvalidConfigurationError, match="do not all support one of sticky"):
        members.make(name, app="b", slots=2, strategies=["sticky"], leave_on_close=False, rewinds=rewinds).join(300)
    assert members_of(kafka, group) == [f"{group}-a-{slot}" for slot in range(2)]
    assert reading.rebalance_needed() is None


def test_a_newcomer_without_the_strategy_in_use_waits_for_the_end_of_a_rewind(settings, members, name, group):
    reading = members.make(name, app="a", slots=1, strategies=["range", "sticky"])
    reading.join(30)
    joining = members.make(name, app="b", slots=1, strategies=["sticky"])
    with ThreadPoolExecutor(2) as pool:
        target = dict.fromkeys(everything(name, PARTITIONS), 3)
        rewinding = pool.submit(rewind_running_group, settings, group, target, timeout=60)
        wait_until(reading.rebalance_needed, "the program to join")
        waiting = pool.submit(joining.join, 60)
        rejoin_until_joined(reading, waiting)
        assert rewinding.result(60).offsets == target
    assert reading.assignment.assignor == "sticky"
    assert sorted([*held(reading), *held(joining)]) == everything(name, PARTITIONS)


def test_a_consumer_of_java_gets_its_own_error_and_the_group_reads_on(kafka, groups, name, group, streams, tmp_path):
    reading = streams.run(kafka_partition_assignment_strategy="range")
    all_committed(groups, group, name, reading)
    with java_consumer(tmp_path, kafka.bootstrap_servers, group, name, strategy="sticky") as java:
        wait_until(lambda: java.process.poll() is not None, "Java's error")
    assert "supported protocols are incompatible" in java.log.read_text()
    reads_on(kafka, groups, group, name, reading)


def test_a_group_is_rewound_while_a_stream_is_refused(settings, groups, name, group, streams):
    reading = streams.run(kafka_partition_assignment_strategy="range")
    all_committed(groups, group, name, reading)
    last, before = ends(groups, name), len(reading.read)
    with ThreadPoolExecutor(1) as pool:
        rewinding = pool.submit(rewind_running_group, settings, group, dict.fromkeys(last, 0), timeout=60)
        refused = streams.run(kafka_partition_assignment_strategy="sticky")
        assert rewinding.result(60).offsets == dict.fromkeys(last, 0)
    refusal_of(streams, refused)

    def again(tp: TopicPartition) -> list[tuple[int, int]]:
        return [(r.start, r.end) for r in reading.read[before:] if r.topic_partition == tp]

    wait_until(lambda: all(covered(again(tp), 0, end) for tp, end in last.items()), "everything to be read again")
    reading.check()
