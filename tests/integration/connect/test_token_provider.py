"""Both engines log in to a real broker with OAUTHBEARER tokens that a user's own function makes."""

import base64
import json
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError
from kafka_source.fetch.select import engine_for
from kafka_source.model.stream_offset import Range
from kafka_source.produce.delivery import deliver
from kafka_source.produce.records import Records
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.fetches import fetch_request

LISTENER = "listener.name.client"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
TOPIC = "payroll"
# Brokers with it accept `token`.
TOKENS = {
    f"{LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{LISTENER}.oauthbearer.sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="broker";',
}


def token(options: dict[str, str]) -> tuple[str, float]:
    """A token without a signature, which brokers take that are set up for tests."""
    now = time.time()
    # Brokers, whose time has no microseconds, refuse a token of the future.
    claims = {"sub": options["user"], "iat": now - 1, "exp": now + 600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode(), now + 600


def no_token(options: dict[str, str]) -> tuple[str, float]:
    raise RuntimeError(f"no token for {options['user']}")


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {"nobody": "unused"}), config=TOKENS) as kafka:
        kafka.create_topic(TOPIC, 1)
        yield kafka


def settings(kafka: EmbeddedKafka, function: str = "token") -> Settings:
    return Settings(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{MODULE} user="alice";',
            "sasl.oauthbearer.token.provider": f"{__name__}:{function}",
        }
    )


def read(kafka: EmbeddedKafka, engine: str, end: int, function: str = "token") -> list[bytes]:
    request = fetch_request(Range(TOPIC, 0, 0, end), column="value")
    batches = engine_for(engine, settings(kafka, function)).read(request)
    return [row["value"] for batch in batches for row in batch.to_pylist()]


def test_both_engines_write_and_read_with_the_tokens_of_a_function(kafka):
    words = [f"{engine}-{number}".encode() for engine in ("auto", "librdkafka") for number in range(10)]
    for engine in ("auto", "librdkafka"):
        own = [word for word in words if word.startswith(engine.encode())]
        assert deliver(settings(kafka), [Records(pa.array(own), None, TOPIC)], engine) == 10
    for engine in ("auto", "librdkafka"):
        assert sorted(read(kafka, engine, 20)) == sorted(words)


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_function_that_gives_no_token_is_named_and_not_quoted(kafka, engine):
    with pytest.raises(AuthenticationError, match="no_token gave no token: RuntimeError") as caught:
        read(kafka, engine, 1, "no_token")
    assert "alice" not in str(caught.value)
