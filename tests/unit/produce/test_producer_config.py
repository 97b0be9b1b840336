"""The configuration of the sink's producers."""

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StringType, StructType

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.produce.librdkafka import at_least_once, producer_config, transactional_config
from kafka_source.produce.records import Records
from kafka_source.sink.writer import batch_writer, stream_writer


def test_java_defaults_where_librdkafka_has_others() -> None:
    config = producer_config(Settings({}))
    assert config["partitioner"] == "murmur2_random"
    assert config["message.timeout.ms"] == "120000"
    assert config["message.max.bytes"] == "1048576"
    assert config["enable.idempotence"] is True
    assert producer_config(Settings({"delivery.timeout.ms": "5000"}))["message.timeout.ms"] == "5000"
    # librdkafka would try for ever.
    assert producer_config(Settings({"delivery.timeout.ms": "0"}))["message.timeout.ms"] == "1"
    assert producer_config(Settings({"max.request.size": "5000"}))["message.max.bytes"] == "5000"


def test_records_wait_for_full_batches_unless_the_user_wants_otherwise() -> None:
    assert producer_config(Settings({}))["linger.ms"] == "50"
    assert producer_config(Settings({"linger.ms": "0"}))["linger.ms"] == "0"


def test_a_record_is_taken_that_javas_producer_takes() -> None:
    producer = Producer({**producer_config(Settings({"bootstrap.servers": "127.0.0.1:1"})), "log_level": 0})
    producer.produce("t", b"x" * 1_048_000)
    producer.purge()


def test_a_record_that_the_queue_never_holds_ends_the_write() -> None:
    delivery = at_least_once(
        Settings({"bootstrap.servers": "127.0.0.1:1", "buffer.memory": "1048576", "max.request.size": "8000000"})
    )
    with pytest.raises(InvalidConfigurationError, match=r"kafka\.buffer\.memory"):
        delivery.send(Records(pa.array([b"x" * 2_000_000]), keys=None, topics="t"))
    delivery.drop()


@pytest.mark.parametrize(
    ("given", "idempotent"),
    [
        ({"acks": "all"}, True),
        ({"acks": "1"}, False),
        ({"acks": "0"}, False),
        ({"retries": "0"}, False),
        ({"max.in.flight.requests.per.connection": "6"}, False),
        ({"max.in.flight.requests.per.connection": "1"}, True),
        ({"enable.idempotence": "false"}, "false"),
    ],
)
def test_idempotence_gives_way_to_settings_that_speak_against_it(given: dict[str, str], idempotent: bool | str) -> None:
    assert producer_config(Settings(given))["enable.idempotence"] == idempotent


@pytest.mark.parametrize(
    "given",
    [
        {"transaction.timeout.ms": "1000"},
        {"transaction.timeout.ms": "60000"},
        {"transaction.timeout.ms": "900000"},
        {"transaction.timeout.ms": "2000", "delivery.timeout.ms": "2000", "request.timeout.ms": "2000"},
        {"message.timeout.ms": "0"},
        {"acks": "-1", "enable.idempotence": "t", "retries": "3"},
        {},
    ],
)
def test_librdkafka_takes_what_an_exactly_once_task_gives_it(given: dict[str, str]) -> None:
    config = transactional_config(Settings({"bootstrap.servers": "127.0.0.1:1", **given}))
    Producer({**config, "transactional.id": "p-0-0", "log_level": 0})
    asked = int(given.get("delivery.timeout.ms", given.get("message.timeout.ms", 120_000)))
    assert int(config["message.timeout.ms"]) == min(asked, int(given.get("transaction.timeout.ms", 600_000)))


@pytest.mark.parametrize("given", [{"acks": "1"}, {"retries": "0"}, {"max.in.flight.requests.per.connection": "6"}])
def test_a_setting_that_speaks_against_idempotence_is_refused_beside_it(given: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.enable.idempotence": "true"}
    options |= {f"kafka.{name}": value for name, value in given.items()}
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionError, match=r"with kafka\.enable\.idempotence=true"):
            make(options, StructType().add("value", StringType()), False)


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("delivery.timeout.ms", "60001", r"kafka\.transaction\.timeout\.ms \(60000\)"),
        ("message.timeout.ms", "120000", r"kafka\.transaction\.timeout\.ms \(60000\)"),
        ("request.timeout.ms", "90000", r"kafka\.transaction\.timeout\.ms \(60000\)"),
        ("acks", "1", "all"),
        ("retries", "0", "at least 1"),
        ("max.in.flight.requests.per.connection", "6", "at most 5"),
        ("enable.idempotence", "false", "true"),
    ],
)
def test_a_setting_that_speaks_against_transactions_is_told_at_the_start(name: str, value: str, takes: str) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", "transactional.id.prefix": "p", f"kafka.{name}": value}
    options["kafka.transaction.timeout.ms"] = "60000"
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionError, match=rf"kafka\.{name} got .*{takes} with transactional=true"):
            make({**options, "transactional": "true"}, StructType().add("value", StringType()), False)
