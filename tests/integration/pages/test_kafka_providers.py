"""Brokers that lack what those of Kafka providers lack, and their page, followed word for word at such brokers."""

import base64
import hmac
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError, InvalidConfigurationError
from kafka_source.kafka_client.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka_source.kafka_client.messages.codec import Reader, Writer
from kafka_source.kafka_client.messages.tables import Request, Structure
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.doctor import examine
from kafkagroup.embedded import EmbeddedKafka, Frame, Security
from kafkagroup.embedded.tcp_proxy import CutConnection, TcpProxy
from tests.integration.connect.test_token_provider import TOKENS, token
from tests.integration.pages.test_pages_run import blocks, shell
from tests.support.programs import installed
from tests.support.records import produce

_S = TypeVar("_S", bound=Structure)
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "kafka-providers.md"
COUNT = 100
PASSWORD = "correct-horse-battery"
USERS = dict.fromkeys(("key", "billing", "$ConnectionString"), PASSWORD)
# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, DescribeTransactions, ListTransactions
TRANSACTIONS = frozenset({22, 24, 25, 26, 28, 65, 66})
# DescribeAcls, CreateAcls, DeleteAcls, DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
ADMINISTRATION = frozenset({29, 30, 31, 32, 33, 44})
SASL_AUTHENTICATE = 36
# Kafka 2.5's of Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup.
OLD = {0: 8, 1: 11, 2: 5, 3: 9, 8: 8, 9: 7, 10: 3, 11: 7}


@dataclass
class Provider:
    """A proxy's hooks that take from a broker what a provider's has not.

    Attributes:
        lacks: The keys of the APIs that it does not have.
        newest: The newest versions that it has, by API key.
        is_odd: Whether its metadata names no cluster, no controller and no racks.
        refused: The keys of the requests for what it has not, whose connections it has closed.
    """

    lacks: frozenset[int] = frozenset()
    newest: dict[int, int] = field(default_factory=dict)
    is_odd: bool = False
    refused: set[int] = field(default_factory=set)

    def ask(self, frame: Frame) -> Iterable[bytes]:
        if frame.api_key in self.lacks or frame.api_version > self.newest.get(frame.api_key, frame.api_version):
            self.refused.add(frame.api_key)
            raise CutConnection
        return [frame.payload]

    def answer(self, frame: Frame) -> Iterable[bytes]:
        if frame.api_key == ApiVersionsRequest.API_KEY:
            return [rewritten(frame, ApiVersionsRequest, ApiVersionsResponse, self._versions)]
        if frame.api_key == MetadataRequest.API_KEY and self.is_odd:
            return [rewritten(frame, MetadataRequest, MetadataResponse, self._metadata)]
        return [frame.payload]

    def _versions(self, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        kept = [
            changed(one, max_version=min(one.max_version, self.newest.get(one.api_key, one.max_version)))
            for one in answer.api_keys
            if one.api_key not in self.lacks
        ]
        return changed(answer, api_keys=kept)

    def _metadata(self, answer: MetadataResponse) -> MetadataResponse:
        brokers = [changed(one, rack=None) for one in answer.brokers]
        return changed(answer, brokers=brokers, cluster_id=None, controller_id=-1)


@dataclass
class Msk(Provider):
    """A provider that accepts the tokens that AWS's signer makes with `PASSWORD`, by a token that its broker accepts.

    The broker refuses all others, which are no JWT.
    """

    # A version without tags.
    newest: dict[int, int] = field(default_factory=lambda: {SASL_AUTHENTICATE: 1})

    def ask(self, frame: Frame) -> Iterable[bytes]:
        (payload,) = super().ask(frame)
        head, start, login = payload.partition(b"n,,\1auth=Bearer ")
        if start and is_signed(base64.urlsafe_b64decode(login.rstrip(b"\1") + b"==").decode()):
            login = start + token({"user": "role"})[0].encode() + b"\1\1"
            return [head[:-4] + struct.pack(">i", len(login)) + login]
        return [payload]


def is_signed(url: str) -> bool:
    """Whether `PASSWORD` has signed a request for MSK in eu-west-1, by AWS's Signature Version 4."""
    split = urlsplit(url)
    asked = dict(parse_qsl(split.query))
    signature = asked.pop("X-Amz-Signature")
    # The signer adds it to the signed URL.
    del asked["User-Agent"]
    scope = [asked["X-Amz-Date"][:8], "eu-west-1", "kafka-cluster", "aws4_request"]
    query = urlencode(sorted(asked.items()), quote_via=quote, safe="~")
    request = "\n".join(["GET", split.path, query, f"host:{split.netloc}", "", "host", sha256().hexdigest()])
    signed = [asked["X-Amz-Algorithm"], asked["X-Amz-Date"], "/".join(scope), sha256(request.encode()).hexdigest()]
    key = f"AWS4{PASSWORD}".encode()
    for text in (*scope, "\n".join(signed)):
        key = hmac.digest(key, text.encode(), "sha256")
    return asked["Action"] == "kafka-cluster:Connect" and key.hex() == signature


LEAST = Provider(TRANSACTIONS | ADMINISTRATION, OLD, is_odd=True)


def changed(structure: _S, **fields: object) -> _S:
    return type(structure)(**{**{name: getattr(structure, name) for name in structure.FIELDS}, **fields})


def rewritten(frame: Frame, request: type[Request[_S]], response: type[_S], change: Callable[[_S], _S]) -> bytes:
    """A response to a request with what `change` makes of it."""
    reader, writer = Reader(frame.payload), Writer()
    writer.int32(reader.int32())
    version, flexible = frame.api_version, frame.api_version >= request.flexible_from
    if request is ApiVersionsRequest:
        # Its header is never flexible, and an unknown version is answered in version 0.
        version = 0 if frame.payload[4:6] == b"\0\x23" else version
        flexible = version >= request.flexible_from
    reader.flexible = writer.flexible = flexible
    if flexible and request is not ApiVersionsRequest:
        reader.skip_tags()
        writer.tags()
    change(response.decode(reader, version)).encode(writer, version)
    return writer.written()


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[EmbeddedKafka, TcpProxy]]:
    secured = Security("SASL_PLAINTEXT", USERS)
    with TcpProxy() as proxy, EmbeddedKafka(security=secured, advertised_ports={1: proxy.port}, config=TOKENS) as kafka:
        proxy.connect_to(kafka.port(1))
        for topic in ("orders", "copies"):
            kafka.create_topic(topic, 2)
        produce(kafka.internal_bootstrap_servers, "orders", COUNT)
        yield kafka, proxy


def consume(settings: Mapping[str, str], group: str) -> int:
    """Read all orders as a member of a group, commit them, and return their number."""
    read = 0
    with arrow.consume("orders", {**settings, "group.id": group}, start="earliest", max_wait=5) as stream:
        for batch in stream:
            read += batch.num_rows
            stream.commit()
    return read


def test_the_doctor_names_brokers_without_transactions(behind: tuple[EmbeddedKafka, TcpProxy]) -> None:
    kafka, proxy = behind
    proxy.on_request, proxy.on_response = LEAST.ask, LEAST.answer
    settings = kafka.java_client_config("$ConnectionString")
    found = examine(settings, topics=["orders"], group="billing", transactional_id="copies")
    told = [one for one in found if "transactional id" in one.name]
    assert [(one.state, one.happened) for one in told] == [
        ("warn", "The brokers have no transactions."),
        ("fail", "The brokers have no transactions."),
    ]
    assert [one.name for one in found if one.state == "fail"] == [told[1].name]


@pytest.fixture(scope="module")
def encrypted() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security=Security("SASL_SSL", USERS)) as kafka:
        kafka.create_topic("orders", 2)
        produce(kafka.internal_bootstrap_servers, "orders", COUNT)
        yield kafka


def block_after(title: str) -> str:
    """The first block of code after a heading of the page."""
    line = PAGE.read_text().splitlines().index(f"## {title}") + 1
    return next(block.code for block in blocks(PAGE) if block.line > line)


def follow(title: str, changes: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Do what the page says with a section's settings, with `arrow.consume` as the query, and return the settings."""
    code = block_after(title)
    for word, own in changes.items():
        assert word in code
        code = code.replace(word, own)
    given = re.findall(r'"kafka\.([a-z.]+)"[,:] (.+?)\)?,?$', code, re.MULTILINE)
    settings = {name: str(eval(value, {"os": os})) for name, value in given}
    group = settings.pop("group.id")
    (folder / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    doctor = block_after("In this order")
    assert group in doctor
    shell(doctor, folder, doctor)
    report = (folder / "report.json").read_text()
    assert PASSWORD not in report
    states = {finding["name"]: finding["state"] for finding in json.loads(report)["findings"]}
    assert "fail" not in states.values()
    assert consume(settings, group) == COUNT
    (shown,) = re.findall(r"`(kafkagroup group .+?)`", PAGE.read_text())
    shell(shown, folder, shown)
    groups = Groups(Settings(settings))
    assert sum(groups.committed(group).values()) == COUNT
    groups.delete(group)
    return settings


@pytest.mark.requires_native
@pytest.mark.parametrize(
    ("title", "server", "lacks"),
    [
        ("Confluent Cloud", "pkc-12345.eu-west-1.aws.confluent.cloud:9092", Provider(ADMINISTRATION)),
        ("Azure Event Hubs", "NAMESPACE.servicebus.windows.net:9093", LEAST),
    ],
)
def test_a_section_is_followed_at_brokers_that_lack_what_the_providers_lack(
    title: str,
    server: str,
    lacks: Provider,
    behind: tuple[EmbeddedKafka, TcpProxy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, proxy = behind
    proxy.on_request, proxy.on_response = lacks.ask, lacks.answer
    for password in ("KAFKA_API_SECRET", "EVENT_HUBS_CONNECTION_STRING"):
        monkeypatch.setenv(password, PASSWORD)
    # The hooks see no frames of TLS.
    changes = {server: kafka.bootstrap_servers, "SASL_SSL": "SASL_PLAINTEXT"}
    settings = follow(title, changes, tmp_path)
    rows = pa.table({"value": [b"one", b"two"]})
    if lacks is LEAST:
        with pytest.raises(InvalidConfigurationError, match=r"InitProducerId.* kafka\.enable\.idempotence=false"):
            arrow.write("copies", rows, settings)
        more = {"max.request.size": "1000000", "enable.idempotence": "false"}
        assert [name for name in more if f"`kafka.{name}={more[name]}`" not in PAGE.read_text()] == []
        settings |= more
    assert arrow.write("copies", rows, settings) == rows.num_rows
    assert lacks.refused == set()


@pytest.mark.requires_native
def test_the_section_of_scram_is_followed(
    encrypted: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    certificate = encrypted.java_client_config()["ssl.truststore.location"]
    changes = {"kafka.example.com:9093": encrypted.bootstrap_servers, "/etc/kafka/ca.pem": certificate}
    follow("Redpanda, Aiven, self-made", changes, tmp_path)


@pytest.mark.long
@pytest.mark.requires_native
def test_the_section_of_iam_is_followed(
    behind: tuple[EmbeddedKafka, TcpProxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, proxy = behind
    provider = Msk(ADMINISTRATION)
    proxy.on_request, proxy.on_response = provider.ask, provider.answer
    # As the extra `aws` does.
    signer = installed(tmp_path / "signer", "aws-msk-iam-sasl-signer-python")
    monkeypatch.syspath_prepend(signer)
    monkeypatch.setenv("PYTHONPATH", str(signer))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    server = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
    settings = follow("Amazon MSK", {server: kafka.bootstrap_servers, "SASL_SSL": "SASL_PLAINTEXT"}, tmp_path)
    assert arrow.write("copies", pa.table({"value": [b"one"]}), settings) == 1
    assert provider.refused == set()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(AuthenticationError):
        consume(settings, "refused")
