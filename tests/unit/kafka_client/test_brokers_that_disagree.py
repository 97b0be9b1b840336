"""Brokers of one cluster that answer differently, because one of them is cut off from its controllers."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, RetriableError
from kafka_source.kafka_client import TRANSACTION, ConnectionLost, Deadline, KafkaClient
from kafka_source.kafka_client.handshake import Identity
from kafka_source.transactions.open_transaction import initialise
from tests.support.fake_broker import TOPIC, WITH_IDENTITY, FakeBroker, Partition
from tests.support.waiting import wait_until

Pair = tuple[FakeBroker, FakeBroker]


@pytest.fixture
def brokers() -> Iterator[Pair]:
    """A broker that is cut off, and takes itself for the leader, and one that has the cluster's state."""
    cut_off, current = FakeBroker(node=1), FakeBroker(node=2)
    with closing(cut_off), closing(current):
        cut_off.peers, current.peers = [current], [cut_off]
        current.topic_id = cut_off.topic_id
        cut_off.partitions = {0: Partition(leader=1, leader_epoch=5)}
        current.partitions = {0: Partition(leader=2, leader_epoch=6)}
        for each in (cut_off, current):
            each.coordinator_error = 0
        yield cut_off, current


def client_of(*brokers: FakeBroker, age_ms: int = 100) -> KafkaClient:
    servers = ",".join(broker.bootstrap_servers for broker in brokers)
    return KafkaClient(Settings({"bootstrap.servers": servers, "metadata.max.age.ms": str(age_ms)}))


def leader_and_epoch(client: KafkaClient, seconds: float = 10) -> tuple[int, int]:
    partition = client.run(client.metadata([TOPIC], Deadline(seconds))).topics[TOPIC].partitions[0]
    return partition.leader, partition.leader_epoch


def refuse(broker: FakeBroker, code: ErrorCode) -> None:
    """Let a coordinator refuse to initialise any transactional id."""

    def answer(_: InitProducerIdRequest, __: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=int(code), producer_id=-1, producer_epoch=-1)

    broker.answer(InitProducerIdRequest, 4, answer)


def test_a_broker_that_is_cut_off_is_believed_for_the_age_of_metadata_only(brokers: Pair) -> None:
    with closing(client_of(brokers[0])) as client:
        assert leader_and_epoch(client) == (1, 5)
        wait_until(lambda: leader_and_epoch(client) == (2, 6), "the other broker's answer")


def test_what_one_broker_knows_is_not_forgotten_for_an_older_answer(brokers: Pair) -> None:
    with closing(client_of(brokers[1])) as client:
        assert leader_and_epoch(client) == (2, 6)
        asked = brokers[0].asked.count("MetadataRequest")
        wait_until(
            lambda: leader_and_epoch(client) == (2, 6) and brokers[0].asked.count("MetadataRequest") > asked + 2,
            "answers of the broker that is cut off",
            10,
        )
        brokers[1].close()
        with pytest.raises(ConnectionLost):
            leader_and_epoch(client, 1)


def test_a_topic_that_was_created_again_begins_its_epochs_again(brokers: Pair) -> None:
    cut_off, current = brokers
    with closing(client_of(current)) as client:
        assert leader_and_epoch(client) == (2, 6)
        for broker in (current, cut_off):
            broker.topic_id, broker.partitions = type(broker.topic_id)(int=7), {0: Partition(leader=2)}
        assert leader_and_epoch(client) == (2, 0)


def test_a_cluster_whose_epochs_all_went_back_is_believed_after_a_rebootstrap(brokers: Pair) -> None:
    """It was restored from a backup, with its ids."""
    settings = {"bootstrap.servers": brokers[1].bootstrap_servers, "metadata.recovery.rebootstrap.trigger.ms": "500"}
    with closing(KafkaClient(Settings(settings))) as client:
        assert leader_and_epoch(client) == (2, 6)
        brokers[1].partitions[0].leader_epoch = 2
        brokers[0].partitions[0].leader_epoch = 2
        assert leader_and_epoch(client)[1] == 2


@pytest.mark.parametrize("knows_topics", [True, False])
def test_a_coordinator_that_is_forgotten_is_asked_of_another_broker(brokers: Pair, knows_topics: bool) -> None:
    """The broker that is cut off takes itself for the coordinator, which then cannot commit."""
    with closing(client_of(brokers[0], age_ms=600_000)) as client:
        if knows_topics:
            assert leader_and_epoch(client) == (1, 5)
        assert client.run(client.coordinator("group", Deadline(10))).node_id == 1
        client.forget_coordinator("group")
        assert client.run(client.coordinator("group", Deadline(10))).node_id == 2


def test_a_coordinator_that_is_lost_is_forgotten_for_all_that_it_coordinates(brokers: Pair) -> None:
    """Each of them would wait for a connection that a broker which is cut off never opens."""
    with closing(client_of(brokers[0], age_ms=600_000)) as client:
        for name in ("one", "two"):
            assert client.run(client.coordinator(name, Deadline(10), TRANSACTION)).node_id == 1
        brokers[0].close()
        client.run(initialise(client, "one", 60_000, Deadline(10)))
        assert client.run(client.coordinator("two", Deadline(10), TRANSACTION)).node_id == 2


def test_a_transaction_that_never_ends_is_asked_of_another_coordinator(brokers: Pair) -> None:
    """The coordinator that is cut off cannot write the markers of the last one, and answers so for ever."""
    cut_off, current = brokers
    refuse(cut_off, ErrorCode.CONCURRENT_TRANSACTIONS)
    with closing(client_of(cut_off, age_ms=600_000)) as client:
        with pytest.raises(RetriableError, match="CONCURRENT_TRANSACTIONS"):
            client.run(initialise(client, "id", 60_000, Deadline(0.5)))
        assert client.run(initialise(client, "id", 60_000, Deadline(10))).producer_id == current.producer_ids


def test_the_last_answer_is_told_where_the_last_try_gets_none(brokers: Pair) -> None:
    tries = [RetriableError("The group is loaded.", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    async def ask() -> None:
        raise tries.pop() if tries else ConnectionLost("No answer.")

    with closing(client_of(brokers[0])) as client:
        with pytest.raises(ConnectionLost, match=r"^No answer\. The last answer was: The group is loaded\.$") as lost:
            client.run(client.retrying(ask, Deadline(0.5)))
    assert lost.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_refusal_counts_only_if_another_broker_names_the_same_coordinator(brokers: Pair) -> None:
    """The coordinator that is cut off refuses by the epoch that it knew before."""
    cut_off, current = brokers
    refuse(cut_off, ErrorCode.PRODUCER_FENCED)
    with closing(client_of(cut_off, age_ms=600_000)) as client:
        assert client.run(initialise(client, "id", 60_000, Deadline(10))).producer_id == current.producer_ids


def test_a_refusal_of_all_who_take_themselves_for_the_coordinator_counts(brokers: Pair) -> None:
    for broker in brokers:
        refuse(broker, ErrorCode.PRODUCER_FENCED)
    with closing(client_of(brokers[0], age_ms=600_000)) as client:
        for _ in range(2):
            with pytest.raises(FencedError):
                client.run(initialise(client, "id", 60_000, Deadline(10)))
    assert [broker.asked.count("InitProducerIdRequest") for broker in brokers] == [2, 2]


def test_bootstrap_servers_are_tried_in_random_order(brokers: Pair) -> None:
    def first() -> int:
        with closing(client_of(*brokers, age_ms=600_000)) as client:
            return leader_and_epoch(client)[0]

    seen: set[int] = set()
    wait_until(lambda: seen.add(first()) or seen == {1, 2}, "each broker to be the first once")


def test_a_broker_that_has_the_address_of_another_one_is_left(brokers: Pair) -> None:
    """Two pods have got each other's addresses."""
    first, second = brokers
    second.partitions[0].leader_epoch = 5
    for broker in brokers:
        broker.answer(ApiVersionsRequest, WITH_IDENTITY)
    with closing(client_of(first, age_ms=600_000)) as client:
        assert leader_and_epoch(client) == (1, 5)
        # Whom to expect is not known before the first metadata.
        assert (first.meant, second.meant) == ([], [])
        known = client.run(client.broker(2, Deadline(10)))
        client.open_socket(known.endpoint).close()
        first.node, second.node = 2, 1
        with pytest.raises(ConnectionLost, match="no longer the address of broker 2 of cluster fake: another"):
            client.open_socket(known.endpoint)
        with pytest.raises(ConnectionLost, match="another broker answers there"):
            client.run(client.connection(known, Deadline(10)))
        assert second.meant == [Identity("fake", 2)] * 3
        leader_and_epoch(client)
        found = client.run(client.broker(1, Deadline(10)))
        assert found.endpoint == known.endpoint
        assert not client.run(client.connection(found, Deadline(10))).closed
        assert second.meant[3:] == [Identity("fake", 1)]


def test_brokers_that_do_not_check_it_are_asked_in_the_version_before(brokers: Pair) -> None:
    with closing(client_of(brokers[0])) as client:
        leader_and_epoch(client)
        client.run(client.connection(client.run(client.broker(2, Deadline(10))), Deadline(10)))
    assert brokers[1].asked == ["ApiVersionsRequest"]
