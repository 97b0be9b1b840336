"""Topics that come, go, grow or are created anew while a group reads them."""

import pytest

from assignors import TopicPartition
from kafka_source.errors import OptionError
from kafka_source.kafka_client.messages.group import JoinGroupRequest
from kafka_source.model import topic_pattern
from tests.support.memberships import everything, held
from tests.support.records import add_partitions
from tests.support.waiting import wait_until


def test_new_partitions_cause_one_rebalance(kafka, members, topic):
    orders = topic("orders", partitions=4)
    membership = members.make(orders)
    first = membership.join(30)
    add_partitions(kafka, orders, 7)
    reason = wait_until(membership.rebalance_needed, "the change")
    assert reason == f"topic {orders} has 7 partitions, 4 before"
    second = membership.rejoin(30)
    assert held(membership) == everything(orders, 7)
    assert second.generation == first.generation + 1
    assert membership.rebalance_needed() is None


def test_a_topic_on_which_the_pattern_never_ends_stops_the_query_and_not_its_heartbeats(
    kafka, members, topic, monkeypatch
):
    monkeypatch.setattr(topic_pattern, "_SEARCH_SECONDS", 2)
    prefix = topic("named", partitions=2)
    membership = members.make(pattern=f"^{prefix}(-([a-z]+-?)+)?$")
    generation = membership.join(30).generation
    name = f"{prefix}-{'a' * 60}_"
    kafka.create_topic(name, 1)
    try:
        reason = wait_until(membership.rebalance_needed, "the change")
        assert f"for topic {name} the search takes longer than 2 s" in reason
        assert membership.lost() is None
        assert membership.assignment.generation == generation
        with pytest.raises(OptionError, match="Option subscribePattern"):
            membership.rejoin(30)
    finally:
        admin = kafka.admin()
        admin.delete_topics([name])[name].result(timeout=30)


def test_a_burst_of_topics_that_match_causes_at_most_two_rebalances(kafka, members, topic):
    prefix = topic("burst")
    membership = members.make(pattern=f"{prefix}-.*", rebalance_batch_ms=2_000)
    first = membership.join(30)
    assert held(membership) == []
    names = [f"{prefix}-{n:02}" for n in range(50)]
    admin = kafka.admin()
    from confluent_kafka.admin import NewTopic

    for name in names:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=30)
    rejoined = 0

    def complete():
        nonlocal rejoined
        if membership.rebalance_needed():
            membership.rejoin(30)
            rejoined += 1
        return len(held(membership)) == 50

    wait_until(complete, "all topics")
    assert rejoined <= 2
    assert membership.assignment.generation <= first.generation + 2
    assert held(membership) == [TopicPartition(name, 0) for name in names]


def test_a_restart_with_another_subscription_is_not_given_the_old_assignment(members, topic):
    orders, clicks = topic("orders", partitions=4), topic("clicks", partitions=2)
    before = members.make(orders, leave_on_close=False)
    before.join(30)
    before.close()
    after = members.make(orders, clicks, leave_on_close=False)
    after.join(30)
    assert held(after) == sorted(everything(orders, 4) + everything(clicks, 2))
    after.close()
    last = members.make(clicks)
    last.join(30)
    assert held(last) == everything(clicks, 2)


def test_partitions_that_came_while_the_application_was_away_are_assigned(kafka, members, topic):
    orders = topic("orders", partitions=2)
    before = members.make(orders, leave_on_close=False)
    before.join(30)
    before.close()
    add_partitions(kafka, orders, 5)
    after = members.make(orders)
    after.join(30)
    assert held(after) == everything(orders, 5)


def test_a_static_leader_that_returns_to_an_old_broker_watches_the_topics(kafka, members, topic, monkeypatch):
    # Before Kafka 3.2 a static leader that returns is told its former member id as the leader's.
    monkeypatch.setattr(JoinGroupRequest, "max_version", 8)
    orders = topic("orders", partitions=4)
    before = members.make(orders, slots=2, leave_on_close=False)
    before.join(30)
    before.close()
    after = members.make(orders, slots=2, leave_on_close=False)
    assert not after.join(30).leading
    add_partitions(kafka, orders, 7)
    assert wait_until(after.rebalance_needed, "the change") == f"topic {orders} has 7 partitions, 4 before"
    after.rejoin(30)
    assert held(after) == everything(orders, 7)
