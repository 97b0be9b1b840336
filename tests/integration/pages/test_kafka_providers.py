"""Brokers that lack what those of Kafka providers lack: transactions, administration, new versions, full metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
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
from tests.support.records import produce

_S = TypeVar("_S", bound=Structure)
COUNT = 100
PASSWORD = "correct-horse-battery"
USERS = dict.fromkeys(("key", "billing", "$ConnectionString"), PASSWORD)
# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, DescribeTransactions, ListTransactions
TRANSACTIONS = frozenset({22, 24, 25, 26, 28, 65, 66})
# DescribeAcls, CreateAcls, DeleteAcls, DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
ADMINISTRATION = frozenset({29, 30, 31, 32, 33, 44})
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
    with TcpProxy() as proxy, EmbeddedKafka(security=secured, advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        for topic in ("orders", "copies"):
            kafka.create_topic(topic, 2)
        produce(kafka.internal_bootstrap_servers, "orders", COUNT)
        yield kafka, proxy


@pytest.fixture
def lesser(behind: tuple[EmbeddedKafka, TcpProxy]) -> Iterator[dict[str, str]]:
    """The settings of a client at brokers without transactions; no request asks for what they lack."""
    kafka, proxy = behind
    lacks = Provider(TRANSACTIONS | ADMINISTRATION, OLD, is_odd=True)
    proxy.on_request, proxy.on_response = lacks.ask, lacks.answer
    yield kafka.java_client_config("$ConnectionString")
    assert lacks.refused == set()


def test_the_doctor_names_brokers_without_transactions(lesser: dict[str, str]) -> None:
    found = examine(lesser, topics=["orders"], group="billing", transactional_id="copies")
    told = [one for one in found if "transactional id" in one.name]
    assert [(one.state, one.happened) for one in told] == [
        ("warn", "The brokers have no transactions."),
        ("fail", "The brokers have no transactions."),
    ]
    assert [one.name for one in found if one.state == "fail"] == [told[1].name]


@pytest.mark.requires_native
def test_a_member_reads_commits_and_writes_without_transactions(lesser: dict[str, str]) -> None:
    read = 0
    with arrow.consume("orders", {**lesser, "group.id": "without"}, start="earliest", max_wait=5) as stream:
        for batch in stream:
            read += batch.num_rows
            stream.commit()
    assert read == COUNT
    assert sum(Groups(Settings(lesser)).committed("without").values()) == COUNT
    rows = pa.table({"value": [b"one", b"two"]})
    with pytest.raises(InvalidConfigurationError, match="no version of InitProducerId"):
        arrow.write("copies", rows, lesser)
    assert arrow.write("copies", rows, {**lesser, "enable.idempotence": "false"}) == rows.num_rows
