"""A batch as members of a group: it starts at the committed offsets, and looking at it consumes nothing."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pyspark
import pytest

from assignors import load
from assignors.range_and_round_robin import RangeAssignor
from kafka_source.commits.keeper import SlotKeeper, start_keeper
from kafka_source.commits.rights import Renewal, Right, SlotSession
from kafka_source.errors import FencedError
from kafka_source.group.model import Topics
from kafka_source.group.siblings import Siblings
from kafka_source.model.commits import with_notes
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from tests.support.memberships import everything, held, leave
from tests.support.records import numbers, produce, reader
from tests.support.waiting import wait_until, wait_until_committed


@pytest.fixture
def orders(topic):
    return topic("orders", partitions=3, records=300)


def test_looking_twice_shows_the_same_and_commits_nothing(spark, kafka, orders, groups):
    frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-look").load()
    assert len(frame.take(2)) == 2
    assert frame.count() == 300
    assert numbers(frame) == list(range(300))
    assert groups.committed(f"{orders}-look") == {}


def test_each_read_goes_on_where_the_last_one_committed(spark, kafka, orders, groups):
    group = f"{orders}-nightly"

    def read():
        return numbers(reader(spark, kafka, orders, kafka_group_id=group, commit="task").load())

    assert read() == list(range(300))
    assert read() == []
    produce(kafka.bootstrap_servers, orders, 30, first=300)
    assert read() == list(range(300, 330))
    wait_until_committed(groups, group, 330)
    wait_until(lambda: groups.describe(group).members == (), "the slots to leave")


def test_a_committed_read_is_not_read_twice(spark, kafka, orders):
    frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-once", commit="task").load()
    assert frame.count() == 300
    if pyspark.__version__.startswith("4.0."):
        # Spark 4.0 plans the second action anew, from the offsets that the first one committed.
        assert frame.count() == 0
        return
    with pytest.raises(Exception, match="can be read once"):
        frame.count()


def test_plain_commits_serve_where_transactions_are_not_allowed(spark, kafka, orders, groups):
    options = {"kafka_group_id": f"{orders}-plain", "commit": "task", "commit_transactional": "false"}
    assert reader(spark, kafka, orders, **options).load().count() == 300
    wait_until_committed(groups, f"{orders}-plain", 300)


def test_a_pattern_and_more_slots_than_partitions(spark, kafka, orders):
    options = {"subscribePattern": f"{orders}|nowhere.*", "kafka_group_id": f"{orders}-pattern", "group_members": 5}
    assert numbers(reader(spark, kafka, "", **options).load()) == list(range(300))


def test_the_group_can_be_left_a_label(spark, kafka, orders, groups):
    options = {"kafka_group_id": f"{orders}-label", "group_membership": "false"}
    assert reader(spark, kafka, orders, **options).load().count() == 300
    assert f"{orders}-label" not in groups.states()


def test_scans_of_one_dataframe_may_be_planned_at_the_same_time(kafka, orders):
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": orders,
        "kafka.group.id": f"{orders}-scans",
    }
    readers = [BatchReader(given, source_schema(headers=False)) for _ in range(4)]

    def planned(reader):
        return sorted(r for task in reader.partitions() for r in task.ranges)

    with ThreadPoolExecutor(len(readers)) as pool:
        ranges = list(pool.map(planned, readers))
    assert sum(r.size for r in ranges[0]) == 300
    assert all(found == ranges[0] for found in ranges)


def test_a_dataframe_can_be_joined_with_itself(spark, kafka, orders):
    for number in range(3):
        frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-self-{number}").load()
        values = frame.selectExpr("CAST(value AS STRING) AS number")
        assert values.alias("left").join(values.alias("right"), "number").count() == 300


def plan_to_commit(kafka, orders, group, **more):
    """The reader and the tasks of a batch that commits, in a group with the shortest session that brokers allow."""
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": orders,
        "kafka.group.id": group,
        "commit": "task",
        "kafka.session.timeout.ms": "6000",
        "kafka.heartbeat.interval.ms": "500",
        **more,
    }
    planned = BatchReader(given, source_schema(headers=False))
    return planned, planned.partitions()


def run(planned, task):
    return [int(value.as_py()) for rows in planned.read(task) for value in rows["value"]]


def test_a_task_is_tried_again_after_another_read_has_moved_the_group_on(kafka, orders, topic, group, groups):
    plain = {"commit.transactional": "false"}
    planned, tasks = plan_to_commit(kafka, orders, group, **plain)
    other = topic("other", records=30)
    planned_other, other_tasks = plan_to_commit(kafka, other, group, **plain)
    # The slots are in a later generation than the one of their plan. The first attempt finds it, and its executor dies.
    attempt = planned.read(tasks[0])
    next(attempt)
    attempt.close()
    rows = [number for task in tasks for number in run(planned, task)]
    assert sorted(rows) == list(range(300))
    assert sorted(number for task in other_tasks for number in run(planned_other, task)) == list(range(30))
    wait_until_committed(groups, group, 330)


@contextmanager
def kept(members, name, *, siblings=None, strategy=None, end=1, **settings):
    """Keep the slots of a batch that ends at this offset; return their credentials, and the future of the keeper."""
    planner = members.make(name, app="batch", rewinds=False, **settings)
    right, over = uuid4().hex, threading.Event()
    slots = [replace(slot.credentials, right=right) for slot in planner.join(30).slots]
    planner.detach()
    strategies = [load("range") if strategy is None else strategy]
    membership = members.make(name, app="batch", rewinds=False, siblings=siblings, strategies=strategies, **settings)
    ends = dict.fromkeys((tp for slot in slots for tp in slot.partitions), end)
    patience = settings.get("rebalance_timeout_ms", 60_000) / 1000
    keeper = SlotKeeper(membership, slots, Right(right), ends, lambda: not over.is_set(), patience)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield slots, pool.submit(keeper.run)
        finally:
            over.set()


def test_slots_leave_when_the_driver_has_ended(members, topic, group, groups, program):
    name = topic("orders")
    planner = members.make(name, slots=2)
    slots = [slot.credentials for slot in planner.join(30).slots]
    planner.detach()
    ends, settings = dict.fromkeys(slots[0].partitions, 1), members.settings(slots=2)
    start_keeper(members.config, settings, Topics((name,)), slots, Right(None), ends, [load("range")], program.pid)
    program.kill()
    if sys.platform == "darwin":  # where a zombie counts as a process that runs
        program.wait()
    # Not by the end of their sessions, which is 45 s away.
    wait_until(lambda: groups.describe(group).members == (), "the slots to leave", 30)


def commit_as_tasks(members, group, slots, start=0):
    """Commit the end of a batch of one record in each partition as its tasks do."""
    for slot in slots:
        renewal = Renewal(group, slot.right, dict.fromkeys(slot.partitions, (start, start + 1)), None, {})
        (session,) = SlotSession.attach_all(members.config, [slot], 20, renewal).result(21)
        if not isinstance(session, SlotSession):
            raise session
        session.commit(with_notes(dict.fromkeys(slot.partitions, start + 1), {}, slot.right))


def test_slots_of_a_batch_that_is_not_run_leave_until_a_task_commits(members, topic, group, groups):
    name = topic("orders", partitions=2)
    with kept(members, name, slots=2, rebalance_timeout_ms=1_000) as (slots, keeping):
        wait_until(lambda: groups.describe(group).members == (), "the slots to leave")
        # Somebody has run it after all.
        commit_as_tasks(members, group, slots)
        assert keeping.result(20) == "the batch is committed"
    assert groups.committed(group) == dict.fromkeys(everything(name, 2), 1)


@pytest.mark.parametrize("is_rewound", [False, True])
def test_a_batch_that_begins_after_its_groups_offset_undoes_no_rewind(members, topic, group, groups, is_rewound):
    name = topic("orders", partitions=1, records=10)
    (tp,) = everything(name, 1)
    groups.create(group, {tp: 3})
    with kept(members, name, end=9, slots=1, rebalance_timeout_ms=1_000) as (slots, _):
        wait_until(lambda: groups.describe(group).members == (), "the slots to leave")
        if is_rewound:
            groups.rewind(group, {tp: 2})
            with pytest.raises(FencedError, match=f"a rewind has changed the offsets of {name}"):
                commit_as_tasks(members, group, slots, 8)
        else:
            # Retention has deleted the records up to the start of the batch.
            commit_as_tasks(members, group, slots, 8)
    assert groups.committed(group) == {tp: 2 if is_rewound else 9}


def test_slots_that_have_left_a_group_of_others_join_again_for_a_task(members, topic, group, groups):
    name = topic("orders", partitions=2)
    ours, theirs = (Siblings.find(group, os.getpid()) for _ in range(2))
    with kept(members, name, siblings=ours, slots=2, rebalance_timeout_ms=2_000, heartbeat_interval_ms=100) as (
        slots,
        keeping,
    ):
        members.make(topic("other"), app="other", slots=1, rewinds=False, siblings=theirs).join(20)
        wait_until(lambda: len(groups.describe(group).members) == 1, "the slots to leave")
        commit_as_tasks(members, group, slots)
        assert keeping.result(20) == "the batch is committed"
    assert groups.committed(group) == dict.fromkeys(everything(name, 2), 1)


def test_a_batch_that_is_run_too_late_leaves_the_partitions_to_their_new_owner(members, topic, group, groups):
    name = topic("orders", partitions=2)
    with kept(members, name, slots=2, rebalance_timeout_ms=1_000) as (slots, keeping):
        wait_until(lambda: groups.describe(group).members == (), "the slots to leave")
        other = members.make(name, app="other", slots=1, rewinds=False)
        other.join(30)
        assert held(other) == everything(name, 2)
        with pytest.raises(FencedError, match="another member may have been assigned"):
            commit_as_tasks(members, group, slots)
        assert "other members" in keeping.result(20)
    assert groups.committed(group) == {}


def test_a_batch_is_over_when_its_group_refuses_its_slots(members, topic, group, groups):
    with kept(members, topic("orders"), slots=1, rebalance_timeout_ms=1_000) as (slots, keeping):
        wait_until(lambda: groups.describe(group).members == (), "the slots to leave")
        members.make(topic("other"), app="other", slots=1, rewinds=False, strategies=["sticky"]).join(30)
        with pytest.raises(FencedError):
            commit_as_tasks(members, group, slots)
        assert "INCONSISTENT_GROUP_PROTOCOL" in keeping.result(20)


def test_a_slot_that_cannot_rejoin_does_not_stop_the_group(members, topic, group):
    class Fails(RangeAssignor):
        """With anything that nobody has thought of."""

        def subscription_user_data(self, topics):
            raise RuntimeError("it cannot subscribe")

    orders = topic("orders", partitions=2)
    ours, theirs = (Siblings.find(group, os.getpid()) for _ in range(2))
    with kept(members, orders, slots=1, siblings=ours, strategy=Fails()) as (_, keeping):
        other = members.make(orders, app="other", slots=1, rewinds=False, siblings=theirs)
        other.join(20)
        assert "it cannot subscribe" in keeping.result(20)
    assert held(other) == everything(orders, 2)


def test_slots_that_never_join_again_leave_if_their_tasks_were_faster_than_the_keeper(members, topic):
    name = topic("orders", partitions=2)
    planner = members.make(name, app="batch", rewinds=False)
    slots = [slot.credentials for slot in planner.join(30).slots]
    planner.detach()
    for slot in slots:
        (session,) = SlotSession.attach_all(members.config, [slot], 20).result(21)
        assert isinstance(session, SlotSession), session
        session.commit(dict.fromkeys(slot.partitions, 1))
    ends = dict.fromkeys(everything(name, 2), 1)
    looks = iter(range(20))
    keeper = SlotKeeper(
        members.make(name, app="batch", rewinds=False),
        slots,
        Right(None),
        ends,
        lambda: next(looks, None) is not None,
        60,
    )
    assert keeper.run() == "the batch is committed"


@pytest.mark.parametrize("lost", [True, False])
def test_tasks_commit_with_new_credentials_when_their_slots_have_joined_again(members, topic, group, groups, lost):
    name = topic("orders", partitions=2)
    ours, theirs = (Siblings.find(group, os.getpid()) for _ in range(2))
    with kept(members, name, slots=2, siblings=ours) as (slots, keeping):
        if lost:
            # As the coordinator does when no heartbeat comes.
            for slot in slots:
                leave(members.config, slot)
        else:
            members.make(topic("other"), app="other", slots=1, rewinds=False, siblings=theirs).join(20)
        commit_as_tasks(members, group, slots)
        assert keeping.result(20) == "the batch is committed"
    assert groups.committed(group) == dict.fromkeys(everything(name, 2), 1)


def test_attempts_of_a_task_end_in_any_order_and_one_of_them_commits(kafka, orders, group, groups):
    planned, (first, *others) = plan_to_commit(kafka, orders, group)
    earlier = planned.read(first)
    next(earlier)
    # Spark compares the duration of tasks: another attempt begins later and ends first.
    later = run(planned, first)
    wait_until_committed(groups, group, len(later))
    committed = groups.committed(group)
    list(earlier)
    assert groups.committed(group) == committed
    rows = later + [number for task in others for number in run(planned, task)]
    assert sorted(rows) == list(range(300))
    wait_until_committed(groups, group, 300)


@pytest.mark.timeout(180, func_only=True)
@pytest.mark.parametrize("commit", ["none", "task"])
@pytest.mark.parametrize("how", ["union", "join"])
def test_two_topics_are_read_in_one_batch_of_one_group(spark, kafka, orders, topic, group, groups, how, commit):
    # In most of its partitions there is nothing to read, so most of its slots have no task.
    other = topic("other", partitions=6)
    produce(kafka.bootstrap_servers, other, 3, first=200)
    left, right = (reader(spark, kafka, name, kafka_group_id=group, commit=commit).load() for name in (other, orders))
    if how == "union":
        assert numbers(left.union(right)) == sorted([*range(300), 200, 201, 202])
    else:
        assert numbers(left.join(right.select("key"), "key")) == [200, 201, 202]
    wait_until_committed(groups, group, 303 if commit == "task" else 0)
    wait_until(lambda: groups.describe(group).members == (), "the slots to leave")
