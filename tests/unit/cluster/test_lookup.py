"""What the driver asks of a cluster, and for how long it asks again."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import (
    ApplicationRecoverableError,
    AuthenticationError,
    BootstrapError,
    OptionError,
    RefreshRetriableError,
    UnknownTopicError,
)
from kafka_source.model.topic_selection import TopicSelection
from tests.support.fake_broker import TOPIC, FakeBroker, Partition

UNKNOWN_SERVER_ERROR, NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, REBOOTSTRAP_REQUIRED = -1, 6, 29, 129
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with closing(FakeBroker()) as there:
        there.partitions = {0: Partition(end=7), 1: Partition(end=3)}
        yield there


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[Cluster]:
    with closing(cluster_of(broker)) as asked:
        yield asked


def cluster_of(broker: FakeBroker, *, retries: int = 3, retry_ms: int = 10, **settings: str) -> Cluster:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    return Cluster(Settings(servers | given), timeout_ms=500, retries=retries, retry_ms=retry_ms)


def test_topics_and_offsets_are_what_the_leader_says(cluster: Cluster) -> None:
    assert cluster.partitions(TopicSelection(topics=(TOPIC,))) == [FIRST, SECOND]
    assert cluster.partitions(TopicSelection(pattern="ord")) == [FIRST, SECOND]
    assert cluster.earliest([FIRST]) == {FIRST: 0}
    assert cluster.latest([FIRST, SECOND], read_committed=True) == {FIRST: 7, SECOND: 3}
    assert cluster.cluster_id() == "fake"


def test_what_is_not_there_is_told_at_once(broker: FakeBroker, cluster: Cluster) -> None:
    cluster.cluster_id()
    with pytest.raises(UnknownTopicError, match=r"Topic nowhere does not exist.*correct its name"):
        cluster.partitions(TopicSelection(topics=("nowhere",)))
    with pytest.raises(UnknownTopicError, match="offsets of orders-2 failed"):
        cluster.latest([TopicPartition(TOPIC, 2)], read_committed=False)
    assert cluster.topics(["nowhere"]) == {"nowhere": None}
    assert broker.asked.count("ListOffsetsRequest") == 0


def test_partitions_of_assign_that_do_not_exist_are_left_out_and_told_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert cluster.partitions(TopicSelection(partitions=(FIRST, TopicPartition(TOPIC, 2)))) == [FIRST]
    assert caplog.text.count("option assign names partitions that do not exist: orders-2;") == 1
    assert cluster.partitions(TopicSelection()) == []


def test_partitions_of_assign_that_do_not_exist_are_refused_at_the_first_look(broker: FakeBroker) -> None:
    wrong = TopicSelection(partitions=(FIRST, TopicPartition(TOPIC, 9)))
    with closing(Cluster(Settings({"bootstrap.servers": broker.bootstrap_servers}), strict=True)) as strict:
        with pytest.raises(OptionError, match=r"do not exist: orders-9.*set the option strict to false"):
            strict.partitions(wrong)
        assert strict.partitions(TopicSelection(partitions=(FIRST,))) == [FIRST]
        # A partition that is deleted while the query runs is data loss, and no mistake in the options.
        assert strict.partitions(wrong) == [FIRST]


def test_first_and_latest_offsets_are_asked_for_together(broker: FakeBroker, cluster: Cluster) -> None:
    cluster.cluster_id()
    before = broker.asked.count("MetadataRequest")
    assert cluster.bounds([FIRST], [FIRST, SECOND], read_committed=False) == ({FIRST: 0}, {FIRST: 7, SECOND: 3})
    assert broker.asked.count("ListOffsetsRequest") == 2
    assert broker.asked.count("MetadataRequest") == before + 1
    assert cluster.bounds([], [], read_committed=False) == ({}, {})


@pytest.mark.parametrize("selection", [TopicSelection(topics=(TOPIC,)), TopicSelection(pattern="ord")])
def test_a_plan_asks_for_metadata_once(broker: FakeBroker, cluster: Cluster, selection: TopicSelection) -> None:
    cluster.cluster_id()
    before = len(broker.asked)
    with cluster.metadata_snapshot():
        partitions = cluster.partitions(selection)
        assert cluster.partitions(selection) == partitions
        cluster.topics({TOPIC})
        cluster.latest(partitions, read_committed=False)
        cluster.earliest(partitions)
    assert broker.asked[before:] == ["MetadataRequest", "ListOffsetsRequest", "ListOffsetsRequest"]
    assert broker.connections == 1
    cluster.latest(partitions, read_committed=False)
    assert broker.asked[-2:] == ["MetadataRequest", "ListOffsetsRequest"]


def test_a_plan_asks_again_when_a_leader_has_moved_or_a_partition_was_added(
    broker: FakeBroker, cluster: Cluster
) -> None:
    with cluster.metadata_snapshot():
        cluster.partitions(TopicSelection(topics=(TOPIC,)))
        broker.offset_errors = [NOT_LEADER]
        before = len(broker.asked)
        assert cluster.latest([FIRST], read_committed=False) == {FIRST: 7}
        assert broker.asked[before:] == ["ListOffsetsRequest", "MetadataRequest", "ListOffsetsRequest"]
        broker.partitions[2] = Partition(end=5)
        assert cluster.latest([TopicPartition(TOPIC, 2)], read_committed=False) == {TopicPartition(TOPIC, 2): 5}
    assert broker.asked[-2:] == ["MetadataRequest", "ListOffsetsRequest"]


def test_a_plan_asks_again_when_a_leader_does_not_answer(
    broker: FakeBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, silent = broker._handlers[ListOffsetsRequest], threading.Event()

    def after_a_silence(*request: object) -> object:
        if not silent.is_set():
            silent.set()
            time.sleep(1)
        return answer(*request)

    monkeypatch.setitem(broker._handlers, ListOffsetsRequest, after_a_silence)
    with cluster.metadata_snapshot():
        cluster.partitions(TopicSelection(topics=(TOPIC,)))
        before = len(broker.asked)
        assert cluster.latest([FIRST], read_committed=False) == {FIRST: 7}
    assert [name for name in broker.asked[before:] if name != "ApiVersionsRequest"] == [
        "ListOffsetsRequest",
        "MetadataRequest",
        "ListOffsetsRequest",
    ]


def test_a_plan_may_begin_with_what_a_client_knows(broker: FakeBroker, cluster: Cluster) -> None:
    cluster.partitions(TopicSelection(topics=(TOPIC,)))
    before = len(broker.asked)
    with cluster.metadata_snapshot(cluster._client.known):
        cluster.latest([FIRST], read_committed=False)
    assert broker.asked[before:] == ["ListOffsetsRequest"]


@pytest.mark.parametrize("named", [TOPIC, None])
def test_a_refused_topic_is_no_missing_one(broker: FakeBroker, cluster: Cluster, named: str | None) -> None:
    broker.topic_error = TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthenticationError, match=f"{TOPIC}.*TOPIC_AUTHORIZATION_FAILED"):
        if named is None:
            cluster.latest([FIRST], read_committed=False)
        else:
            cluster.partitions(TopicSelection(topics=(named,)))


@pytest.mark.spark_test("KafkaOffsetReaderSuite", "SPARK-55561: retries on transient failures")
def test_a_leader_that_is_on_its_way_is_waited_for(broker: FakeBroker, cluster: Cluster) -> None:
    broker.partitions[1].leader = -1
    threading.Timer(0.2, setattr, (broker.partitions[1], "leader", 1)).start()
    assert cluster.latest([FIRST, SECOND], read_committed=False) == {FIRST: 7, SECOND: 3}


@pytest.mark.spark_test("KafkaOffsetReaderSuite", "SPARK-55561: throws after all retries")
def test_a_leader_that_does_not_come_is_named(broker: FakeBroker, cluster: Cluster) -> None:
    broker.partitions[1].leader = -1
    with pytest.raises(RefreshRetriableError, match=r"no broker leads orders:1\."):
        cluster.latest([FIRST, SECOND], read_committed=False)


def test_an_old_leader_is_asked_no_more(broker: FakeBroker, cluster: Cluster) -> None:
    broker.offset_errors = [NOT_LEADER, NOT_LEADER]
    assert cluster.latest([FIRST], read_committed=False) == {FIRST: 7}
    assert broker.asked.count("ListOffsetsRequest") == 3


def test_trouble_inside_a_broker_may_pass(broker: FakeBroker, cluster: Cluster) -> None:
    """Such as that of a store of tiered segments; Spark's own source asks again after any error."""
    broker.offset_errors = [UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR]
    assert cluster.at_times({FIRST: 1}, read_committed=False) == {FIRST: 1}
    broker.offset_errors = [TOPIC_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR]
    with pytest.raises(AuthenticationError, match=f"offsets of {TOPIC}-0"):
        cluster.latest([FIRST], read_committed=False)
    broker.offset_errors = [UNKNOWN_SERVER_ERROR] * 1000
    with pytest.raises(ApplicationRecoverableError, match=f"offsets of {TOPIC}-0 failed: UNKNOWN_SERVER_ERROR"):
        cluster.latest([FIRST], read_committed=False)


def test_it_may_be_asked_again_more_often_than_a_float_can_be_doubled(broker: FakeBroker) -> None:
    broker.offset_errors = [NOT_LEADER] * 1030
    with closing(cluster_of(broker, retries=1030, retry_ms=0)) as cluster:
        assert cluster.latest([FIRST], read_committed=False) == {FIRST: 7}


def test_it_starts_over_when_it_is_told_to(broker: FakeBroker, cluster: Cluster) -> None:
    cluster.latest([FIRST], read_committed=False)
    connections = broker.connections
    broker.metadata_errors = [REBOOTSTRAP_REQUIRED]
    assert cluster.latest([FIRST], read_committed=False) == {FIRST: 7}
    assert broker.connections > connections


def test_where_nothing_is_looked_up_again_the_error_says_so(broker: FakeBroker) -> None:
    with closing(cluster_of(broker, metadata_recovery_strategy="none", default_api_timeout_ms="600")) as cluster:
        assert cluster.cluster_id() == "fake"
        broker.close()
        began = time.monotonic()
        with pytest.raises(BootstrapError, match=r"Asking for offsets failed: .*metadata\.recovery\.strategy is none"):
            cluster.latest([FIRST], read_committed=False)
        assert time.monotonic() - began < 10
