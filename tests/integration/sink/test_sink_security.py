"""Writing where one has to log in, and where rights or the password are wrong."""

import logging
import re
import time
from collections.abc import Iterator

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.errors import AuthenticationError
from kafka_source.model.credentials import SlotCredentials
from kafka_source.produce.delivery import deliver
from kafka_source.runtime.deadline import Deadline
from kafka_source.transactions.offset_committer import TransactionalCommitter
from kafka_source.transactions.producers import TransactionalProducers
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.two_phase import as_records

PASSWORD = "correct-horse-battery"
RECORDS = as_records([b"a", b"b"], "orders")


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def secured(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security=Security(request.param, {"alice": PASSWORD})) as kafka:
        kafka.create_topic("orders", 1)
        yield kafka


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_javas_settings_are_enough_to_write_and_to_begin_transactions(
    secured: EmbeddedKafka,
    mechanism: str,
    engine: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(secured.java_client_config("alice", mechanism))  # type: ignore[arg-type]
    with caplog.at_level(logging.DEBUG):
        assert deliver(settings, [RECORDS], engine) == 2
        producers = TransactionalProducers(librdkafka_config(settings), f"login-{mechanism}")
        producers.take(Deadline(60))
    assert PASSWORD not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_wrong_password_is_told_at_once_and_not_shown(
    secured: EmbeddedKafka, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = secured.java_client_config("alice", "SCRAM-SHA-512")
    jaas = given["sasl.jaas.config"].replace(PASSWORD, "wrong-password")
    settings = Settings({**given, "sasl.jaas.config": jaas})
    committer = TransactionalCommitter(settings, "wrong", timeout=60)
    began = time.monotonic()
    with pytest.raises(AuthenticationError) as written:
        deliver(settings, [RECORDS], engine)
    with pytest.raises(AuthenticationError) as committed:
        committer.commit_as([(SlotCredentials("g", 1, "m", None), {TopicPartition("orders", 0): 1})])
    assert time.monotonic() - began < 40
    for caught in (written, committed):
        assert re.search(r"kafka\.sasl\.(mechanism and the credentials|jaas\.config)", str(caught.value))
        assert "wrong-password" not in str(caught.value) + caplog.text
