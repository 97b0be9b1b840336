"""The native sink against a broker with troubles: nothing lost, nothing twice, in order, and told in time."""

import itertools
import time
import uuid

import pyarrow as pa
import pytest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch

from kafka_source.client_config import Settings
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    AuthenticationError,
    BootstrapError,
    DeliveryError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
)
from kafka_source.produce import delivery
from kafka_source.produce.delivery import deliver, writes_native
from kafka_source.produce.delivery_errors import delivery_error
from kafka_source.produce.records import HEADERS, Records
from kafkagroup.partitioner import partition_of
from tests.support.fake_broker import TOPIC, UNKNOWN_TOPIC_ID, FakeBroker, Partition, Silence

pytestmark = pytest.mark.requires_native

NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC, CONCURRENT = 6, 7, 10, 19, 3, 51
INVALID_TOPIC, TOPIC_REFUSED = 17, 29
QUICK = {"batch.size": "600", "retry.backoff.ms": "5", "retry.backoff.max.ms": "20", "request.timeout.ms": "2000"}


@pytest.fixture
def broker():
    broker = FakeBroker()
    broker.partitions = {number: Partition() for number in range(3)}
    yield broker
    broker.close()


def settings(broker: FakeBroker, **others: str) -> Settings:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return Settings({"bootstrap.servers": broker.bootstrap_servers, **QUICK, **named})


def keyed(begin: int, end: int) -> Records:
    keys = [f"key-{number}".encode() for number in range(begin, end)]
    return Records(pa.array([b"value of " + key for key in keys], pa.binary()), pa.array(keys, pa.binary()), TOPIC)


def expected(count: int) -> list[int]:
    """How many records each partition has."""
    places = [partition_of(f"key-{number}".encode(), 3) for number in range(count)]
    return [places.count(number) for number in range(3)]


def written(broker: FakeBroker) -> list[int]:
    return [sum(batch.count for batch in partition.written) for partition in broker.partitions.values()]


def send(broker: FakeBroker, count: int = 300, **others: str) -> None:
    chunks = [keyed(begin, min(begin + 50, count)) for begin in range(0, count, 50)]
    assert deliver(settings(broker, **others), chunks, "native") == count


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_go_out_in_batches_and_the_next_task_goes_on_with_the_numbers(broker, codec):
    send(broker, compression_type=codec)
    send(broker, compression_type=codec)
    assert written(broker) == [2 * count for count in expected(300)]
    assert broker.producer_ids == 1
    assert len({connection for _, connection, _ in broker.produces}) == 1
    # Each request holds a batch of each partition that has one.
    assert max(len(partitions) for _, _, partitions in broker.produces) == 3
    if codec == "none":
        assert all(len(batch.data) < 700 for part in broker.partitions.values() for batch in part.written)


def test_each_maximum_size_that_java_takes_is_taken(broker):
    send(broker, max_request_size="2147483647", batch_size="2147483647")
    assert written(broker) == expected(300)
    with pytest.raises(InvalidConfigurationError, match=r"max\.request\.size is 1"):
        send(broker, max_request_size="0", batch_size="0")


@pytest.mark.parametrize("error", [NOT_LEADER, TIMED_OUT, NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC, CONCURRENT])
def test_what_passes_is_sent_again(broker, error):
    numbers = itertools.count()
    broker.on_produce = lambda _: error if next(numbers) % 3 else 0
    send(broker)
    assert written(broker) == expected(300)


@pytest.mark.parametrize("lost", ["on_produce", "on_written"])
def test_a_request_whose_answer_or_itself_is_lost_is_sent_again_without_duplicates(broker, lost):
    numbers = itertools.count()

    def lose(_) -> int:
        if next(numbers) % 3 == 1:
            raise Silence
        return 0

    setattr(broker, lost, lose)
    send(broker)
    assert written(broker) == expected(300)
    assert len({connection for _, connection, _ in broker.produces}) > 3


def test_a_broker_that_says_nothing_is_asked_again(broker):
    numbers = itertools.count()
    broker.on_written = lambda _: time.sleep(1.0) if next(numbers) == 0 else None
    send(broker, request_timeout_ms="200")
    assert written(broker) == expected(300)


def test_a_topic_that_is_created_again_within_a_task_is_an_error_and_the_next_task_writes_to_it(broker):
    broker.answer(ProduceRequest, 13)
    old, new = broker.topic_id, uuid.uuid4()

    def create_again(_) -> None:
        broker.topic_id = new
        broker.partitions = {number: Partition() for number in range(3)}

    broker.on_written = lambda _: create_again(_) if len(broker.produces) == 3 else None
    with pytest.raises(DeliveryError, match=rf"{TOPIC}.*deleted and created again") as caught:
        send(broker)
    assert caught.value.code == UNKNOWN_TOPIC_ID
    assert written(broker) == [0, 0, 0]
    send(broker)
    assert written(broker) == expected(300)
    assert {topic for named in broker.produced_topics for topic in named} == {old, new}
    # Between two tasks there is nothing to lose: metadata that are old are fetched again.
    create_again(None)
    broker.topic_id = third = uuid.uuid4()
    send(broker)
    assert written(broker) == expected(300)
    assert broker.produced_topics[-1] == [third]


def test_a_topic_without_an_id_is_written_by_name(broker):
    broker.answer(ProduceRequest, 13)
    broker.topic_id = uuid.UUID(int=0)
    send(broker)
    assert written(broker) == expected(300)
    assert {topic for named in broker.produced_topics for topic in named} == {TOPIC}


def test_a_task_that_fails_leaves_its_identity_behind(broker):
    broker.partitions[1].error = TOO_LARGE
    with pytest.raises(InvalidConfigurationError, match=rf"{TOPIC}-1 .*max\.message\.bytes") as caught:
        send(broker)
    assert caught.value.code == TOO_LARGE
    broker.partitions[1].error = 0
    before = written(broker)
    send(broker)
    assert [after - at for after, at in zip(written(broker), before, strict=True)] == expected(300)
    assert broker.producer_ids == 2


def test_records_that_nobody_takes_are_told_with_the_reason(broker):
    broker.partitions[2].error = NOT_ENOUGH_REPLICAS
    with pytest.raises(DeliveryError, match=rf"{TOPIC}-2 .*NOT_ENOUGH_REPLICAS.*delivery\.timeout\.ms"):
        send(broker, delivery_timeout_ms="2000", request_timeout_ms="200")


def test_a_record_that_is_too_large_is_told_before_it_is_sent(broker):
    large = Records(pa.array([b"x" * 3000], pa.binary()), None, TOPIC)
    with pytest.raises(
        InvalidConfigurationError, match=rf"{TOPIC}.*3\d\d\d bytes.*kafka\.max\.request\.size"
    ) as caught:
        deliver(settings(broker, max_request_size="2000"), [large], "native")
    assert caught.value.code == TOO_LARGE
    assert not broker.produces


def test_a_partition_that_does_not_exist_is_told(broker):
    records = Records(pa.array([b"x"], pa.binary()), None, TOPIC, pa.array([7], pa.int32()))
    with pytest.raises(DeliveryError, match=rf"{TOPIC}-7 .*3 partitions.*does not have the partition"):
        deliver(settings(broker), [records], "native")


@pytest.mark.parametrize(("error", "told"), [(INVALID_TOPIC, "do not allow this topic name"), (TOPIC_REFUSED, "WRITE")])
def test_a_topic_that_brokers_refuse_is_told_at_once(broker, error, told):
    broker.topic_error = error
    began = time.monotonic()
    with pytest.raises(InvalidConfigurationError, match=rf"A record for {TOPIC} .*{told}"):
        send(broker)
    assert time.monotonic() - began < 10


def test_records_without_a_key_stay_together_until_their_batch_is_full(broker):
    records = Records(pa.array([b"0123456789" * 10] * 50, pa.binary()), None, TOPIC)
    assert deliver(settings(broker), [records], "native") == 50
    batches = sorted(batch.count for part in broker.partitions.values() for batch in part.written)
    assert sum(batches) == 50
    assert batches[1:] == [5] * 9 + [5] or len(set(batches[1:])) == 1
    assert max(written(broker)) - min(written(broker)) <= max(batches)


def test_a_part_of_the_rows_is_sent_with_its_keys_and_headers(broker):
    count = 2000
    headers = pa.array([[{"key": "n", "value": str(n).encode()}] for n in range(count)], HEADERS)
    keys = pa.array([f"key-{n}".encode() for n in range(count)], pa.binary())
    values = pa.array([f"value-{n}".encode() for n in range(count)], pa.binary())
    whole = Records(values, keys, TOPIC, pa.array([n % 3 for n in range(count)], pa.int32()), headers)
    assert deliver(settings(broker), [whole.slice(1500, 9)], "native") == 9
    for number, partition in broker.partitions.items():
        found = [record for batch in partition.written for record in DefaultRecordBatch(batch.data)]
        mine = [n for n in range(1500, 1509) if n % 3 == number]
        assert [(r.key, r.value, r.headers) for r in found] == [
            (f"key-{n}".encode(), f"value-{n}".encode(), [("n", str(n).encode())]) for n in mine
        ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_that_are_too_large_for_the_topic_are_sent_in_parts(broker, codec):
    for partition in broker.partitions.values():
        partition.most_bytes = 300
    send(broker, batch_size="5000", compression_type=codec)
    assert broker.producer_ids == 1
    for number, partition in broker.partitions.items():
        found = [record.key for batch in partition.written for record in DefaultRecordBatch(batch.data)]
        keys = [f"key-{n}".encode() for n in range(300)]
        assert found == [key for key in keys if partition_of(key, 3) == number]
    # The first parts have told how large the others may be.
    assert len(broker.produces) < 2 * max(len(part.written) for part in broker.partitions.values())


def test_a_large_record_beside_a_small_record_leaves_later_batches_large(broker):
    broker.partitions = {0: broker.partitions[0]}
    broker.partitions[0].most_bytes = 8_880
    given = settings(broker, batch_size="8850")
    deliver(given, [Records(pa.array([b"small", b"x" * 8_800], pa.binary()), None, TOPIC)], "native")
    broker.produces.clear()
    deliver(given, [Records(pa.array([b"x" * 100] * 1000, pa.binary()), None, TOPIC)], "native")
    assert len(broker.produces) < 40


def test_the_pause_that_a_broker_asks_for_is_kept(broker):
    broker.throttle_ms = 300
    send(broker, 100)
    times = [at for at, _, _ in broker.produces]
    assert len(times) > 1
    assert all(later - sooner >= 0.3 for sooner, later in itertools.pairwise(times))


def test_a_producer_that_is_not_idempotent_has_no_numbers(broker):
    send(broker, acks="1")
    assert broker.producer_ids == 0
    assert {batch.producer_id for part in broker.partitions.values() for batch in part.written} == {-1}


@pytest.mark.parametrize(
    ("name", "value"), [("statistics.interval.ms", "1000"), ("acks", "0"), ("retries", "0"), ("acks", "2")]
)
def test_settings_of_librdkafka_alone_are_left_to_it(name, value):
    given = Settings({"bootstrap.servers": "a:1", name: value})
    assert not writes_native(given, "auto")
    assert writes_native(Settings({"bootstrap.servers": "a:1", "linger.ms": "5"}), "auto")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10, InvalidConfigurationError),  # MESSAGE_TOO_LARGE
        (17, InvalidConfigurationError),  # INVALID_TOPIC_EXCEPTION
        (29, AuthenticationError),  # TOPIC_AUTHORIZATION_FAILED
        (45, ApplicationRecoverableError),  # OUT_OF_ORDER_SEQUENCE_NUMBER
        (47, FencedError),  # INVALID_PRODUCER_EPOCH
        (90, FencedError),  # PRODUCER_FENCED
        (48, DeliveryError),  # INVALID_TXN_STATE: abortable in a response to Produce (KIP-890)
        (NOT_ENOUGH_REPLICAS, DeliveryError),
        (31_000, ApplicationRecoverableError),
    ],
)
def test_a_record_that_is_refused_has_the_category_of_its_code(code: int, kind: type[KafkaGroupError]) -> None:
    error = delivery_error(code, TOPIC, 1, "the reason")
    assert isinstance(error, kind)
    assert isinstance(error, AbortableError) == (kind is DeliveryError)
    assert error.code == code
    assert f"{TOPIC}-1" in str(error)
    assert "the reason" in str(error)


def test_brokers_that_answered_earlier_do_not_fail_the_check_of_a_topic(broker, monkeypatch):
    """A client that rebootstraps knows no broker then; the delivery has its own time limit."""
    monkeypatch.setattr(delivery, "_TOPIC_SECONDS", 0.3)
    monkeypatch.setattr(delivery, "_REACH_SECONDS", 0.3)
    given = settings(broker)
    broker.is_away = True
    with pytest.raises(BootstrapError):
        delivery.check_topic(given, TOPIC)
    broker.is_away = False
    delivery.check_topic(given, TOPIC)
    broker.is_away = True
    for _ in range(2):
        delivery.check_topic(given, "another")
