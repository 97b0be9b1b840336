"""Rates, the time until a group has caught up, and rebalances, from samples."""

from contextlib import closing
from dataclasses import replace

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin.next_records import NextTimes
from kafkagroup.admin.rows import Group, MemberDescription, PartitionLag
from kafkagroup.admin.watch_rates import SAMPLES, GroupSample, History, WatchMember, duration_text, spark_line
from tests.support.fake_broker import TOPIC, FakeBroker, Partition
from tests.support.native import kernel

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def sample(
    at: float, committed: int, end: int, state: str = "Stable", owner: str = "a", second: int | None = None
) -> GroupSample:
    owners = {FIRST: owner} | ({} if second is None else {SECOND: "b"})
    done = {FIRST: committed} | ({} if second is None else {SECOND: second})
    ends = {FIRST: end} | ({} if second is None else {SECOND: 1000})
    return GroupSample(at, "g", state, (owner, "b"), owners, done, ends, {tp: ends[tp] - done[tp] for tp in ends})


def test_a_sample_of_a_group() -> None:
    member = MemberDescription("m", "a", "c", "h", (FIRST,))
    lag = [PartitionLag("orders", 0, 7, 10, "a"), PartitionLag("orders", 1, None, 5, None, start=1)]
    found = GroupSample.from_group(Group("g", "Stable", "range", (member,), "b:1"), lag, 3.0)
    assert found == GroupSample(
        3.0, "g", "Stable", ("a",), {FIRST: "a"}, {FIRST: 7}, {FIRST: 10, SECOND: 5}, {FIRST: 3, SECOND: 4}
    )
    assert found.lag == 7


def test_one_sample_has_no_rates() -> None:
    row = History().add(sample(0, 10, 100))
    assert (row.lag, row.rate_in, row.rate_out, row.seconds_to_zero) == (90, None, None, None)


def test_rates_and_the_time_to_zero() -> None:
    history = History()
    history.add(sample(0, 0, 1000))
    row = history.add(sample(10, 300, 1100))
    assert (row.rate_in, row.rate_out) == (10.0, 30.0)
    assert row.seconds_to_zero == pytest.approx(800 / 20)


def test_a_group_that_does_not_catch_up_has_no_time() -> None:
    history = History()
    history.add(sample(0, 0, 1000))
    assert history.add(sample(10, 100, 1200)).seconds_to_zero is None
    assert history.add(sample(20, 1200, 1200)).seconds_to_zero == 0.0


def test_old_samples_do_not_count_for_the_rates() -> None:
    history = History()
    history.add(sample(0, 0, 1_000_000))
    history.add(sample(60, 600, 1_000_000))
    assert history.add(sample(80, 800, 1_000_000)).rate_out == 10.0


def test_a_rewind_and_a_new_partition_are_no_rate() -> None:
    history = History()
    history.add(sample(0, 500, 1000))
    assert history.add(sample(10, 0, 1000)).rate_out == 0.0
    assert history.add(sample(20, 100, 1000, second=900)).rate_out == 0.0


def test_each_member_has_its_own_rates() -> None:
    history = History()
    history.add(sample(0, 0, 1000, second=900))
    assert [(row.rate_in, row.rate_out) for row in history.members()] == [(None, None)] * 2
    history.add(sample(10, 300, 1100, second=950))
    assert history.members() == [
        WatchMember("g", "a", 1, 800, 10.0, 30.0, 40.0),
        WatchMember("g", "b", 1, 50, 0.0, 5.0, 10.0),
    ]


def test_a_member_that_has_just_got_its_partitions_has_no_rates_yet() -> None:
    history = History()
    history.add(sample(0, 0, 1000, owner="a"))
    history.add(sample(10, 300, 1000, owner="c"))
    rows = {row.member: row for row in history.members()}
    assert (rows["c"].lag, rows["c"].rate_out) == (700, None)
    assert (rows["b"].partitions, rows["b"].rate_out) == (0, 0.0), "it has nothing to read"


def test_partitions_that_nobody_owns_are_a_row() -> None:
    history = History()
    one = sample(0, 0, 1000)
    history.add(replace(one, owners={}, members=()))
    assert [(row.member, row.partitions, row.lag) for row in history.members()] == [(None, 1, 1000)]


def test_rebalances_are_counted_once() -> None:
    history = History()
    counts = [
        history.add(one).rebalances
        for one in (
            sample(0, 0, 9, "PreparingRebalance"),
            sample(1, 0, 9),
            sample(2, 0, 9),
            sample(3, 0, 9, owner="b"),
            sample(4, 0, 9, "PreparingRebalance", owner="b"),
            sample(5, 0, 9, "CompletingRebalance", owner="b"),
            sample(6, 0, 9, owner="b"),
        )
    ]
    assert counts == [0, 0, 0, 1, 1, 1, 2]


def test_the_line_of_the_lag() -> None:
    assert spark_line([0, 0]) == "▁▁"
    assert spark_line([0, 50, 100]) == "▁▅█"
    assert spark_line([]) == ""
    history = History()
    for n in range(SAMPLES + 10):
        history.add(sample(n, 0, n))
    assert len(history.line()) == SAMPLES
    assert history.line()[-1] == "█"


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.0, "0s"), (59.4, "59s"), (60.0, "1m"), (3725.0, "1h 2m"), (90_000.0, "1d 1h")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_next_records_without_a_time_have_no_row() -> None:
    """The last two have no timestamp, and one in nanoseconds, which exceeds microseconds."""
    kernel()
    times = (1_700_000_000_123, 1_700_000_000_123_456, -1, 1_700_000_000_123_456_789)
    with closing(FakeBroker()) as broker:
        for number, time in enumerate(times):
            builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
            builder.append(0, time, None, b"value", [])
            broker.partitions[number] = Partition({0: bytes(builder.build())}, end=1)
        lag = [PartitionLag(TOPIC, number, 0, 1, None) for number in broker.partitions]
        found = NextTimes(Settings({"bootstrap.servers": broker.bootstrap_servers})).look(lag)
    assert found == {TopicPartition(TOPIC, number): times[number] for number in (0, 1)}
