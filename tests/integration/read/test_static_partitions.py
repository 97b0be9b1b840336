"""`assign` with a group: the query commits to the group without membership, and only while the group has no members."""

from collections.abc import Callable
from contextlib import closing

import pytest

from assignors import TopicPartition
from kafka_source.errors import FencedError, InvalidConfigurationError
from kafka_source.group.requests import commit_offsets, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from tests.support.queries import query_of
from tests.support.records import numbers, reader
from tests.support.waiting import wait_until

PARTITIONS = 3
COUNT = 90


@pytest.fixture
def name(topic) -> str:
    made: str = topic("static", partitions=PARTITIONS, records=COUNT)
    return made


@pytest.fixture
def start(kafka, name, group, opened) -> Callable[..., MicroBatches]:
    """Starts streams of partitions 0 and 1."""

    def one(**options: object) -> MicroBatches:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "assign": f'{{"{name}": [0, 1]}}',
            "kafka.group.id": group,
            "startingOffsets": "earliest",
            **options,
        }
        planner = MicroBatches(query_of(given))
        opened.callback(planner.close)
        return planner

    return one


@pytest.fixture
def last(groups, name) -> dict[TopicPartition, int]:
    rows = groups.lag("nobody", [TopicPartition(name, 0), TopicPartition(name, 1)])
    return {TopicPartition(row.topic, row.partition): row.end for row in rows}


def ranges(planner: MicroBatches, before: StreamOffset, end: StreamOffset) -> list[Range]:
    return sorted(r for b in planner.tasks(before, end) for t in b.tasks for r in t.ranges)


def test_a_stream_commits_to_the_group_without_membership(groups, name, group, start, last):
    planner = start()
    first = planner.next(StreamOffset(), limited=True)
    assert ranges(planner, StreamOffset(), first) == [
        Range(tp.topic, tp.partition, 0, end, epoch=0) for tp, end in last.items()
    ]
    # The starting positions are committed at once, the batch when it is durable.
    assert groups.committed(group) == dict.fromkeys(last, 0)
    assert planner.next(first, limited=True) is first
    assert groups.committed(group) == last
    assert groups.describe(group).members == ()
    assert groups.states()[group] == "Empty"


def test_a_late_commit_is_repaired(settings, groups, group, start, last):
    planner = start()
    first = planner.next(StreamOffset(), limited=True)
    planner.tasks(StreamOffset(), first)
    with closing(KafkaClient(settings)) as client:
        late = client.run(fetch_entries(client, group, list(last), Deadline(30)))
        assert planner.next(first, limited=True) is first
        client.run(commit_offsets(client, SlotCredentials.without_membership(group), late, Deadline(30)))
    assert groups.committed(group) == dict.fromkeys(last, 0)

    def is_repaired() -> bool:
        assert planner.next(first, limited=True) is first
        return groups.committed(group) == last

    wait_until(is_repaired, "the commit to be repeated")


def test_a_new_query_starts_where_the_group_is(groups, name, group, start, last):
    groups.rewind(group, {tp: end - 2 for tp, end in last.items()})
    planner = start()
    end = planner.next(StreamOffset(), limited=True)
    assert [r.size for r in ranges(planner, StreamOffset(), end)] == [2, 2]


def test_nothing_is_committed_where_the_group_is_a_label(groups, group, start):
    planner = start(group_membership="false")
    end = planner.next(StreamOffset(), limited=True)
    planner.tasks(StreamOffset(), end)
    assert planner.next(end, limited=True) is end
    assert groups.committed(group) == {}


def test_a_group_with_members_is_refused(members, name, group, start, groups):
    members.make(name, slots=1).join(30)
    with pytest.raises(InvalidConfigurationError, match=f"Group {group} has 1 members.*group.membership=false"):
        start().next(StreamOffset(), limited=True)
    assert groups.committed(group) == {}
    # As a label, as in Spark's own source, the id is nobody's business.
    label = start(group_membership="false")
    assert label.next(StreamOffset(), limited=True).partitions


def test_a_member_that_joins_later_stops_the_query_at_its_next_commit(members, name, group, start, groups, last):
    planner = start()
    end = planner.next(StreamOffset(), limited=True)
    planner.tasks(StreamOffset(), end)
    members.make(name, slots=1).join(30)
    with pytest.raises(FencedError, match=f"Members have joined group {group} while this query reads it with assign"):
        planner.next(end, limited=True)
    assert groups.committed(group) == dict.fromkeys(last, 0)


def test_a_batch_reads_from_the_groups_offsets_and_commits_nothing(spark, kafka, groups, name, group, last):
    groups.rewind(group, {tp: end - 3 for tp, end in last.items()})
    frame = reader(spark, kafka, "", assign=f'{{"{name}": [0, 1]}}', kafka_group_id=group).load()
    assert len(numbers(frame)) == 6
    assert groups.committed(group) == {tp: end - 3 for tp, end in last.items()}
