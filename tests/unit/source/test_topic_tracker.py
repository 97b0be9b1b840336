"""Topics that were deleted or created again are found, reported once, and read from their first record."""

import logging
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.errors import DataLossError, RetriableError
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.model.topic_selection import Topic
from kafka_source.source.topic_tracker import PartitionsWithoutLeader, TopicTracker

CLUSTER = "one"

topics = st.none() | st.builds(Topic, st.sampled_from(["x", "y", "z"]), st.integers(1, 3))
clusters = st.fixed_dictionaries(dict.fromkeys("abc", topics))


class Topics:
    """Topics that a test creates and deletes; looked up as a cluster's are."""

    def __init__(self, now: Mapping[str, Topic | None]) -> None:
        self.now: Mapping[str, Topic | None] = dict(now)
        self.lookups = 0

    def __call__(self, names: Iterable[str]) -> dict[str, Topic | None]:
        self.lookups += 1
        return {name: self.now.get(name) for name in names}


def tracker_of(cluster: Topics, *, fail: bool = False, max_age_ms: int = 3_600_000) -> TopicTracker:
    return TopicTracker(TopicIds(cluster, max_age_ms), fail_on_data_loss=fail)


def offset(found: Mapping[str, Topic | None]) -> StreamOffset:
    """The end of a batch that has read these topics."""
    existing = {name: topic for name, topic in found.items() if topic is not None}
    spans = {
        TopicPartition(name, p): Span(0, 10, -1) for name, topic in existing.items() for p in range(topic.partitions)
    }
    ids = {name: topic.id for name, topic in existing.items() if topic.id is not None}
    return StreamOffset(spans, cluster=CLUSTER, topics=ids)


def lost_between(before: Mapping[str, Topic | None], now: Mapping[str, Topic | None]) -> set[str]:
    """By the definition: deleted, or with another id."""
    existed = {name: old.id for name, old in before.items() if old is not None}
    return {name for name, old_id in existed.items() if (new := now[name]) is None or new.id != old_id}


@given(clusters, st.lists(clusters, max_size=4))
def test_lost_topics_are_left_out_and_reported_once(first, later):
    cluster = Topics(first)
    tracker = tracker_of(cluster)
    start = offset(first)
    assert tracker.check(start, CLUSTER).start == start
    for now in later:
        seen_before = dict(cluster.now)
        reported = tracker.lost_topics
        cluster.now = dict(now)
        tracker.refresh()
        checked = tracker.check(start, CLUSTER)
        lost = lost_between(first, now)
        assert checked.start == start.without(lost)
        assert tracker.lost_topics == lost
        assert {name for name in lost if name not in reported or seen_before[name] != now[name]} == checked.newly_lost
        again = tracker.check(start, CLUSTER)
        assert again.start == checked.start
        assert not again.newly_lost


def test_a_loss_ends_with_the_first_batch_of_the_new_topic():
    old, new = {"a": Topic("x", 1), "b": Topic("y", 1)}, {"a": Topic("z", 2), "b": Topic("y", 1)}
    cluster = Topics(old)
    tracker = tracker_of(cluster)
    tracker.check(offset(old), CLUSTER)
    cluster.now = new
    tracker.refresh()
    assert tracker.check(offset(old), CLUSTER).newly_lost == {"a"}
    checked = tracker.check(offset(new), CLUSTER)
    assert (checked.start, checked.newly_lost, tracker.lost_topics) == (offset(new), frozenset(), frozenset())


def test_without_ids_a_topic_that_was_seen_deleted_stays_lost_when_it_is_back():
    found = {"a": Topic(None, 1)}
    cluster = Topics(found)
    tracker = tracker_of(cluster)
    assert tracker.check(offset(found), CLUSTER).newly_lost == set()
    cluster.now = {}
    tracker.refresh()
    assert tracker.check(offset(found), CLUSTER).newly_lost == {"a"}
    cluster.now = found
    tracker.refresh()
    assert tracker.check(StreamOffset(cluster=CLUSTER), CLUSTER).newly_lost == set()
    assert tracker.lost_topics == {"a"}


def test_a_deleted_topic_stays_lost_while_the_checkpoint_no_longer_has_it():
    found = {"a": Topic("x", 1), "b": Topic("y", 1)}
    cluster = Topics(found)
    tracker = tracker_of(cluster)
    cluster.now = {"b": Topic("y", 1)}
    assert tracker.check(offset(found), CLUSTER).newly_lost == {"a"}
    tracker.check(offset(cluster.now), CLUSTER)
    assert tracker.lost_topics == {"a"}


@pytest.mark.parametrize(
    ("now", "reason"), [(None, "The topic was deleted"), (Topic("z", 1), "created again: its id is now z")]
)
def test_a_loss_is_an_error_or_a_warning(now, reason, caplog):
    cluster = Topics({"a": now})
    start = offset({"a": Topic("x", 1)})
    with pytest.raises(DataLossError, match=rf"a-0 .*{reason}\. To continue"):
        tracker_of(cluster, fail=True).check(start, CLUSTER)
    tracker = tracker_of(cluster)
    with caplog.at_level(logging.WARNING):
        tracker.check(start, CLUSTER)
        tracker.check(start, CLUSTER)
    assert [reason in record.getMessage() for record in caplog.records] == [True]


def test_topics_that_were_migrated_to_another_cluster_have_other_ids_there():
    cluster = Topics({"a": Topic("z", 1)})
    start = offset({"a": Topic("x", 1)})
    checked = tracker_of(cluster, fail=True).check(start, "two")
    assert (dict(checked.start.partitions), dict(checked.start.topics)) == (dict(start.partitions), {})


def test_the_cluster_is_asked_again_only_after_the_maximum_age_or_a_refresh():
    found = {"a": Topic("x", 1)}
    cluster = Topics(found)
    tracker = tracker_of(cluster)
    for _ in range(3):
        tracker.check(offset(found), CLUSTER)
        assert tracker.ids({"a"}) == {"a": "x"}
    assert cluster.lookups == 1
    tracker.refresh()
    tracker.check(offset(found), CLUSTER)
    assert cluster.lookups == 2
    always_old = tracker_of(cluster, max_age_ms=-1)
    always_old.check(offset(found), CLUSTER)
    always_old.check(offset(found), CLUSTER)
    assert cluster.lookups == 4


def test_a_partition_may_have_no_leader_for_so_long(caplog):
    now = 0.0
    leaderless, one, other = PartitionsWithoutLeader(10, lambda: now), TopicPartition("a", 0), TopicPartition("b", 1)
    leaderless.add([one])
    now = 9.0
    leaderless.add([one, other])
    assert leaderless.partitions == {one, other}
    assert sum("no broker leads" in record.getMessage() for record in caplog.records) == 2
    now = 11.0
    leaderless.check([other])
    with pytest.raises(RetriableError, match=r"a:0 for 10 s \(coordinator\.timeout\.ms\)"):
        leaderless.check([one, other])
    leaderless.update(lambda asked: {other}.intersection(asked))
    assert leaderless.partitions == {other}
    # It counts from anew.
    leaderless.add([one])
    leaderless.check([one, other])
