"""`kafkagroup.pinned`: a batch that a group reads and commits as one block."""

import threading
from contextlib import nullcontext

import pytest
from confluent_kafka import Consumer

import kafkagroup
from kafka_source.errors import DataLossError, FencedError, OptionError
from kafka_source.pinned_read import pinned_ranges
from kafka_source.source.group_member_owner import GroupMemberOwner
from tests.support.records import add_partitions, create_again, numbers, produce
from tests.support.waiting import wait_until, wait_until_committed

PARTITIONS = 3


@pytest.fixture
def orders(topic):
    return topic("pinned", partitions=PARTITIONS, records=90)


@pytest.fixture
def options(kafka, orders, group):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": orders,
        "kafka.group.id": group,
        "kafka.heartbeat.interval.ms": "200",
    }


@pytest.mark.parametrize(("option", "count"), [("startingTimestamp", 90), ("endingTimestamp", 0)])
def test_a_partition_that_is_added_while_the_members_join_is_read(kafka, orders, options, monkeypatch, option, count):
    join = GroupMemberOwner.join

    def join_late(owner):
        monkeypatch.setattr(GroupMemberOwner, "join", join)
        add_partitions(kafka, orders, PARTITIONS + 1)
        join(owner)

    monkeypatch.setattr(GroupMemberOwner, "join", join_late)
    with pinned_ranges({**options, option: "1", "startingOffsetsByTimestampStrategy": "latest"}) as ranges:
        assert sum(r.end - r.start for r in ranges) == count


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_all_actions_see_the_same_rows_and_the_end_commits_them(
    spark, kafka, orders, options, group, groups, transactional
):
    options["commit.transactional"] = transactional
    with kafkagroup.pinned(spark, options) as frame:
        assert numbers(frame) == list(range(90))
        produce(kafka.bootstrap_servers, orders, 60, first=90)
        assert frame.count() == 90
        assert frame.groupBy("partition").count().count() == PARTITIONS
        assert {member.partitions for member in groups.describe(group).members} != {()}
        assert groups.committed(group) == {}
    wait_until_committed(groups, group, 90)
    assert groups.describe(group).members == ()
    assert frame.count() == 90
    with kafkagroup.pinned(spark, options, "value string") as rest:
        assert rest.columns == ["value"]
        assert numbers(rest) == list(range(90, 150))


def test_an_exception_in_the_block_commits_nothing(spark, options, group, groups):
    with pytest.raises(RuntimeError, match="the warehouse is full"), kafkagroup.pinned(spark, options) as frame:
        assert frame.count() == 90
        raise RuntimeError("the warehouse is full")
    assert groups.committed(group) == {}
    assert groups.describe(group).members == ()
    with kafkagroup.pinned(spark, options) as again:
        assert again.count() == 90


def test_where_nothing_is_new_the_frame_is_empty(spark, options, group, groups):
    with kafkagroup.pinned(spark, options) as frame:
        columns = frame.columns
    wait_until_committed(groups, group, 90)
    before = groups.committed(group)
    with kafkagroup.pinned(spark, options) as frame:
        assert frame.count() == 0
        assert frame.columns == columns
    with kafkagroup.pinned(spark, options, "offset bigint, value string") as frame:
        assert frame.columns == ["offset", "value"]
        assert frame.collect() == []
    assert groups.committed(group) == before


@pytest.fixture
def other(kafka, orders, group):
    """Starts a plain consumer of the group, which commits nothing; gives the partitions that it has at any time."""
    quick = {"heartbeat.interval.ms": 200, "session.timeout.ms": 2000, "max.poll.interval.ms": 2000}
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False, **quick}
    assigned: set[int] = set()
    ended = threading.Event()

    def on_assign(_, partitions):
        assigned.update(tp.partition for tp in partitions)

    def on_revoke(_, partitions):
        assigned.difference_update(tp.partition for tp in partitions)

    def consume(strategy):
        consumer = Consumer({**config, "partition.assignment.strategy": strategy})
        consumer.subscribe([orders], on_assign=on_assign, on_revoke=on_revoke)
        while not ended.is_set():
            consumer.poll(0.1)
        consumer.close()

    threads: list[threading.Thread] = []

    def start(strategy="range"):
        threads.append(threading.Thread(target=consume, args=(strategy,)))
        threads[-1].start()
        return assigned

    yield start
    ended.set()
    for thread in threads:
        thread.join(30)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_part_of_the_partitions_where_another_member_has_the_rest(spark, options, other, strategy):
    theirs = other(strategy)
    wait_until(lambda: theirs == set(range(PARTITIONS)), "the first member")
    options |= {"group.members": "1", "kafka.partition.assignment.strategy": strategy}
    with kafkagroup.pinned(spark, options, "partition int") as frame:
        wait_until(lambda: 0 < len(theirs) < PARTITIONS, "the sharing")
        assert {row.partition for row in frame.distinct().collect()} == set(range(PARTITIONS)) - theirs


def test_a_group_that_went_on_without_the_block_is_told_and_nothing_committed(spark, options, group, groups, other):
    # So long the group waits for the block when another member joins.
    options |= {"kafka.max.poll.interval.ms": "2000", "group.members": "1"}
    with pytest.raises(FencedError, match=rf"Nothing of this block was committed: group {group} .*max\.poll"):
        with kafkagroup.pinned(spark, options) as frame:
            assert frame.count() == 90
            theirs = other()
            wait_until(lambda: bool(theirs), "the other's turn")
    assert groups.committed(group) == {}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"commit": "task"}, "commit"),
        ({"group.membership": "false"}, "kafka.group.id"),
        ({"subscribe": " "}, "subscribe"),
    ],
)
def test_wrong_options_are_named_before_anything_is_read(spark, options, wrong, named):
    with pytest.raises(OptionError) as caught, kafkagroup.pinned(spark, {**options, **wrong}):
        raise AssertionError("the block must not begin")
    assert caught.value.option == named


@pytest.mark.parametrize(("fails", "transactional"), [(True, "true"), (False, "true"), (True, "false")])
def test_a_topic_that_was_created_again_in_the_block_is_read_from_its_first_record(
    kafka, orders, options, fails, transactional
):
    options = {**options, "failOnDataLoss": str(fails).lower(), "commit.transactional": transactional}
    with pytest.raises(DataLossError, match=f"{orders}-0.*created again") if fails else nullcontext():
        with pinned_ranges(options) as ranges:
            assert sum(r.size for r in ranges) == 90
            kafka.delete_topic(orders)
            create_again(kafka, orders, PARTITIONS)
            produce(kafka.bootstrap_servers, orders, 120)
    with pinned_ranges(options) as ranges:
        assert sorted((r.partition, r.start) for r in ranges) == [(0, 0), (1, 0), (2, 0)]
        assert sum(r.size for r in ranges) == 120


@pytest.mark.parametrize("attempt", range(5))
def test_a_block_that_fails_at_once_does_not_disturb_the_next_one(options, groups, group, attempt):
    options = {**options, "kafka.group.instance.id": f"{group}-static"}
    with pytest.raises(RuntimeError), pinned_ranges(options):
        raise RuntimeError("the job fails")
    with pinned_ranges(options):
        pass
    wait_until_committed(groups, group, 90)
