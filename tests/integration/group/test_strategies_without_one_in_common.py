"""Streams whose strategies have nothing in common: one side is refused in words, the other one reads on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from assignors import Assignment, Subscription, TopicPartition, encode_subscription
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group import strategies
from kafka_source.group.leader import encode
from kafka_source.group.member import Joined, Member, MemberSettings
from kafka_source.group.strategies import Offer
from kafka_source.kafka_client import Deadline, KafkaClient
from kafkagroup.admin import Groups, rewind_running_group
from tests.apps.process import java_consumer
from tests.support.memberships import everything, held, members_of, rejoin_until_joined
from tests.support.records import produce
from tests.support.rewinding import COUNT, PARTITIONS, Runner, Streams, all_committed, covered, ends
from tests.support.waiting import wait_until

REFUSED_WITHIN = 30.0


@pytest.fixture
def name(kafka, topic) -> str:
    made: str = topic("strategies", partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, made, COUNT)
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
    kafka, groups, name, group, streams, caplog, theirs, ours, slots
):
    reading = streams.run(kafka_partition_assignment_strategy=theirs)
    all_committed(groups, group, name, reading)
    before = members_of(kafka, group)
    refused = streams.run(kafka_partition_assignment_strategy=ours, group_members=slots)
    error = refusal_of(streams, refused)
    assert f"offers {ours}" in error
    assert f"the group uses {theirs.split(',')[0]}" in error
    assert f"other members offer {theirs.replace(',', ', ')}" in error
    assert members_of(kafka, group) == before
    reads_on(kafka, groups, group, name, reading)
    warned = [r for r in caplog.records if "refused=" in r.message and r.levelname == "WARNING"]
    assert warned
    assert f"offers {ours}" in warned[0].message


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


def test_a_member_that_leads_refuses_itself_if_the_others_use_another_strategy(settings, members, name, group):
    # It is the leader, because it came first. The other member says that the group uses range: a tie, in which the
    # rule takes the first by name.
    leading = members.make(name, slots=1, strategies=["sticky"], rewinds=True)
    assert leading.join(30).leading
    client = KafkaClient(settings)
    other = Member(client, MemberSettings(group, "other-0"))
    subscribed = encode_subscription(Subscription((name,)))

    async def lead(joined: Joined) -> dict[str, bytes]:
        return encode({m.member_id: Assignment(()) for m in joined.members})

    def join() -> bytes:
        offers = [("range", subscribed), strategies.offer(Offer(("range",), "range"))]
        return client.run(other.join(offers, lead, Deadline(30)), 31)

    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join)
        wait_until(leading.rebalance_needed, "the rebalance")
        with pytest.raises(InvalidConfigurationError, match="offers sticky, and the group uses range"):
            leading.rejoin(30)
        joining.result(30)
    assert join()
    assert other.last_join.protocol == "range"
    client.run(other.leave(Deadline(5)), 6)
    client.close()


def test_a_slot_with_an_instance_id_of_the_users_leaves_too_when_it_is_refused(kafka, members, name, group):
    reading = members.make(name, app="a", slots=1)
    reading.join(30)
    refused = members.make(name, app="b", slots=2, strategies=["sticky"], leave_on_close=False)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(refused.join, 60)
        with pytest.raises(InvalidConfigurationError):
            rejoin_until_joined(reading, joining)
    wait_until(lambda: members_of(kafka, group) == [f"{group}-a-0"], "the refused slots to leave")


@pytest.mark.long
def test_a_stream_is_refused_while_the_others_are_in_a_long_batch(members, name, group, kafka):
    # It never rejoins, as in a micro-batch of an hour.
    reading = members.make(name, app="a", slots=2)
    before = reading.join(30)
    refused = members.make(name, app="b", slots=2, strategies=["sticky"])
    started = time.monotonic()
    with pytest.raises(InvalidConfigurationError, match="offers sticky, and the group uses range"):
        refused.join(300)
    assert time.monotonic() - started < REFUSED_WITHIN
    assert members_of(kafka, group) == [f"{group}-a-{slot}" for slot in range(2)]
    assert reading.lost() is None
    assert reading.rejoin(30).generation > before.generation
    assert held(reading) == everything(name, PARTITIONS)


def test_a_stream_with_a_strategy_in_common_waits_for_a_long_batch(members, name):
    reading = members.make(name, app="a", slots=1, strategies=["cooperative-sticky", "range"])
    reading.join(30)
    assert reading.assignment.assignor == "cooperative-sticky"
    joining = members.make(name, app="b", slots=1, strategies=["range"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(joining.join, 60)
        # Longer than it takes to ask whether it will be refused.
        with pytest.raises(TimeoutError):
            waiting.result(18)
        rejoin_until_joined(reading, waiting)
    assert sorted([*held(reading), *held(joining)]) == everything(name, PARTITIONS)


def test_a_consumer_of_java_gets_its_own_error_and_the_group_reads_on(kafka, groups, name, group, streams, tmp_path):
    reading = streams.run(kafka_partition_assignment_strategy="range")
    all_committed(groups, group, name, reading)
    with java_consumer(tmp_path, kafka.bootstrap_servers, group, name, strategy="sticky") as java:
        wait_until(lambda: java.process.poll() is not None, "Java's error")
    assert "supported protocols are incompatible" in java.log.read_text()
    reads_on(kafka, groups, group, name, reading)


def test_a_batch_gets_the_brokers_error_at_once(members, name):
    reading = members.make(name, app="a", slots=1)
    reading.join(30)
    with pytest.raises(InvalidConfigurationError, match="INCONSISTENT_GROUP_PROTOCOL"):
        members.make(name, app="b", slots=1, strategies=["sticky"], rewinds=False).join(30)
    assert reading.rebalance_needed() is None


def test_a_group_is_rewound_while_a_stream_is_refused(kafka, settings, groups, name, group, streams):
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


def test_a_member_that_does_not_say_what_it_offers_is_not_refused(settings, members, name, group, caplog):
    reading = members.make(name, slots=1)
    reading.join(30)
    client = KafkaClient(settings)
    # As in a version whose offer has no data: a stream, or a program that rewinds.
    older = Member(client, MemberSettings(group))
    offer = (strategies.PROTOCOL, encode_subscription(Subscription(())))

    async def lead(joined: Joined) -> dict[str, bytes]:
        raise AssertionError("another member leads")

    with ThreadPoolExecutor(2) as pool:
        joining = pool.submit(lambda: client.run(older.join([offer], lead, Deadline(30)), 31))
        wait_until(reading.rebalance_needed, "the rebalance")
        rejoining = pool.submit(reading.rejoin, 30)
        joining.result(30)
        client.run(older.leave(Deadline(5)), 6)
        rejoining.result(30)
    client.close()
    assert held(reading) == everything(name, PARTITIONS)
    assert not any("refused=" in line for line in caplog.messages)
