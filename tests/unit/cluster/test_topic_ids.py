"""What is known of topics is kept, until it is invalid, old or incomplete."""

from assignors.model import TopicPartition
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.model.topic_selection import Topic

GROWN = [TopicPartition("a", number) for number in range(3)]


def test_a_topic_that_has_more_partitions_than_known_is_looked_up_again():
    now: dict[str, Topic | None] = {"a": Topic("x", 1)}
    cache = TopicIds(lambda names: {name: now.get(name) for name in names}, 3_600_000)
    assert cache.existing(GROWN) == GROWN[:1]
    now["a"] = Topic("x", 3)
    assert cache.existing(GROWN[:1]) == GROWN[:1]
    assert cache.existing(reversed(GROWN)) == GROWN


def test_a_topic_that_was_created_again_is_not_taken_for_the_known_one_that_has_grown():
    now: dict[str, Topic | None] = {"a": Topic("x", 1)}
    cache = TopicIds(lambda names: {name: now.get(name) for name in names}, 3_600_000)
    assert cache.ids({"a"}) == {"a": "x"}
    now["a"] = Topic("z", 3)
    assert cache.existing(GROWN) == GROWN[:1]
    assert cache.ids({"a"}) == {"a": "x"}
    cache.invalidate()
    assert cache.existing(GROWN) == GROWN
    assert cache.ids({"a"}) == {"a": "z"}


def test_a_topic_that_did_not_exist_is_looked_up_again():
    now: dict[str, Topic | None] = {}
    cache = TopicIds(lambda names: {name: now.get(name) for name in names}, 3_600_000)
    assert cache.describe({"a"}) == {"a": None}
    now["a"] = Topic(None, 1)
    assert cache.describe({"a"}) == {"a": None}
    assert cache.existing(GROWN) == GROWN[:1]
    assert cache.ids({"a"}) == {}
