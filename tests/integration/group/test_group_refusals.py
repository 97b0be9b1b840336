"""What goes wrong in a group, told in one line that names what to change."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, KafkaGroupError, RetriableError
from kafka_source.group.classic.member import RebalanceTimeout
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.memberships import Memberships, everything, held
from tests.support.waiting import wait_until


def test_a_rebalance_that_others_hold_up_is_told(members, topic):
    orders = topic("orders", partitions=2)
    busy = members.make(orders, app="a", slots=1)
    busy.join(30)
    with pytest.raises(RebalanceTimeout, match="has been rebalancing for 2 s: other members have not rejoined yet"):
        members.make(orders, app="b", slots=1).join(2)
    # What was left behind of the one that gave up is out of the group: the busy one is alone again.
    wait_until(busy.rebalance_needed, "the rebalance")
    busy.rejoin(30)
    assert held(busy) == everything(orders, 2)


def test_a_session_timeout_that_the_brokers_do_not_allow(members, topic):
    with pytest.raises(InvalidConfigurationError, match=r"kafka\.session\.timeout\.ms=86400000 .*group\.max\.session"):
        members.make(topic("orders"), session_timeout_ms=86_400_000).join(30)


def test_a_group_at_its_maximum_size():
    with EmbeddedKafka(config={"group.max.size": 2}) as kafka:
        kafka.create_topic("orders", 4)
        members = Memberships(Settings({"bootstrap.servers": kafka.bootstrap_servers}), "small")
        with pytest.raises(InvalidConfigurationError, match=r"group\.members.*group\.max\.size"):
            members.make("orders", slots=3).join(30)
        two = members.make("orders", slots=2)
        two.join(30)
        assert held(two) == everything("orders", 4)
        members.close()


def test_a_group_whose_record_is_too_large_for_the_brokers():
    # 60 members with 10 partitions each take 13 kB.
    with EmbeddedKafka(config={"message.max.bytes": 8_000}) as kafka:
        kafka.create_topic("orders", 600)
        members = Memberships(Settings({"bootstrap.servers": kafka.bootstrap_servers}), "large")
        too_large = r"larger than the brokers' message\.max\.bytes: lower group\.members"
        with pytest.raises(KafkaGroupError, match=too_large):
            members.make("orders", slots=60).join(60)
        members.close()


def test_a_coordinator_that_never_comes_is_told(group):
    # The group's offsets are to be kept three times, on one node: there is no coordinator for anybody.
    with EmbeddedKafka(config={"offsets.topic.replication.factor": 3}) as kafka:
        members = Memberships(Settings({"bootstrap.servers": kafka.bootstrap_servers}), group)
        with pytest.raises(RetriableError, match=rf"coordinator of group {group} failed: COORDINATOR_NOT_AVAILABLE"):
            members.make("orders").join(5)
        members.close()


def test_one_living_server_among_dead_ones_is_enough(kafka, members, topic):
    config = Settings({"bootstrap.servers": f"127.0.0.1:9,{kafka.bootstrap_servers},nowhere.invalid:1"})
    orders = topic("orders", partitions=2)
    membership = members.make(orders, config=config)
    membership.join(30)
    assert held(membership) == everything(orders, 2)


def test_a_group_that_the_user_may_not_join():
    security = Security("SASL_PLAINTEXT", {"alice": "alice-secret"}, acls=True)
    with EmbeddedKafka(security=security) as kafka:
        kafka.create_topic("orders", 2)
        kafka.allow("alice", "READ", "DESCRIBE", resource="topic", name="orders")
        members = Memberships(Settings(kafka.java_client_config("alice")), "theirs")
        started = time.monotonic()
        with pytest.raises(AuthenticationError, match=r"group theirs .*GROUP_AUTHORIZATION_FAILED"):
            members.make("orders").join(60)
        assert time.monotonic() - started < 30
        kafka.allow("alice", "READ", resource="group", name="theirs")
        allowed = members.make("orders")
        allowed.join(30)
        assert held(allowed) == everything("orders", 2)
        members.close()


def test_a_consumer_of_another_client_gets_the_topics_that_the_leader_may_describe(caplog):
    security = Security("SASL_PLAINTEXT", {"alice": "alice-secret", "carol": "carol-secret"}, acls=True)
    with EmbeddedKafka(security=security) as kafka, contextlib.ExitStack() as stack:
        for name in ("orders", "clicks"):
            kafka.create_topic(name, 2)
            kafka.allow("carol", "READ", "DESCRIBE", resource="topic", name=name)
        kafka.allow("alice", "READ", "DESCRIBE", resource="topic", name="orders")
        for user in ("alice", "carol"):
            kafka.allow(user, "READ", resource="group", name="partly")
        members = Memberships(Settings(kafka.java_client_config("alice")), "partly")
        stack.callback(members.close)
        leading = members.make("orders", slots=1, app="alice")
        assert leading.join(30).leading
        # As a consumer of Java's, it does not know what our leader writes into the user data of its assignment.
        config = {**kafka.client_config("carol"), "group.id": "partly", "partition.assignment.strategy": "range"}
        consumer = Consumer(config)
        stack.callback(consumer.close)
        consumer.subscribe(["orders", "clicks"])

        def shared() -> list[tuple[str, int]]:
            consumer.poll(0.1)
            if leading.rebalance_needed() is not None:
                rejoining = pool.submit(leading.rejoin, 30)
                while not rejoining.done():
                    consumer.poll(0.1)
                rejoining.result()
            return [(p.topic, p.partition) for p in consumer.assignment()]

        with ThreadPoolExecutor(1) as pool:
            theirs = wait_until(shared, "an assignment of the other client")
            assert sorted([*theirs, *held(leading)]) == everything("orders", 2)
            rejoining = pool.submit(leading.rejoin, 30)
            while not rejoining.done():
                consumer.poll(0.1)
            rejoining.result()
        assert sum("cannot describe clicks" in line for line in caplog.messages) == 1
