"""The native engine and a broker in trouble: what it waits for, what it tries again, and when it gives up."""

import re
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest as FetchMessage
from kafka.protocol.metadata import MetadataRequest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import (
    AuthenticationError,
    BootstrapError,
    CorruptRecordsError,
    DataLossError,
    RetriableError,
    UnreadableRecordError,
)
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.native_connections import FAR_BYTES, NEAR_BYTES
from kafka_source.kafka_client import KafkaClient, TopicMetadata
from kafka_source.model.stream_offset import Range
from kafka_source.quota.account import Grant
from kafka_source.quota.task_pacer import Pacer
from kafka_source.schema import Column
from tests.support.fake_broker import TOPIC, FakeBroker, Partition, Silence
from tests.support.native import kernel

kernel()

from kafka_source.fetch import native_reader, protocol  # noqa: E402
from kafka_source.fetch.native_reader import NativeEngine  # noqa: E402

UNKNOWN_SERVER_ERROR, NOT_LEADER, TOPIC_AUTHORIZATION_FAILED = -1, 6, 29
COLUMNS = (Column("partition"), Column("offset"))
ENGINES: list[NativeEngine] = []
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";',
}


def filled(batches: int = 1, **how) -> Partition:
    """A partition with batches of ten records."""
    partition = Partition()
    for _ in range(batches):
        partition.add(10, **how)
    return partition


def engine(broker: FakeBroker, **settings: str) -> NativeEngine:
    made = NativeEngine(Settings({"bootstrap.servers": broker.bootstrap_servers, **settings}))
    ENGINES.append(made)
    return made


@pytest.fixture(autouse=True)
def engines_are_closed() -> Iterator[None]:
    yield
    while ENGINES:
        ENGINES.pop().close()


def id_text(broker: FakeBroker) -> str | None:
    return TopicMetadata(TOPIC, broker.topic_id, {}).id_text


def request(*ranges: Range, columns=COLUMNS, timeout_ms=20_000, fail_on_data_loss=True, **more) -> FetchRequest:
    return FetchRequest(
        ranges,
        columns,
        batch_rows=1000,
        batch_bytes=1 << 20,
        timeout_ms=timeout_ms,
        read_committed=False,
        fail_on_data_loss=fail_on_data_loss,
        **more,
    )


def read(reader: NativeEngine, asked: FetchRequest) -> dict[int, list[int]]:
    """The offsets that were read, by partition."""
    found: dict[int, list[int]] = {}
    for batch in reader.read(asked):
        for row in batch.to_pylist():
            found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_a_partition_without_a_leader_is_given_up_in_time_while_others_are_read(broker):
    broker.partitions = {0: filled(400), 1: Partition(leader=-1)}
    # Slow enough that there are records all the time.
    broker.throttle_ms = 20
    with pytest.raises(RetriableError, match=rf"No records came within 1500 ms .* for {TOPIC}-1 at offset 0$"):
        read(engine(broker), request(Range(TOPIC, 0, 0, 4000), Range(TOPIC, 1, 0, 10), timeout_ms=1500))
    # With the longest pause that there is, it would be one or two.
    assert broker.asked.count("MetadataRequest") < 15


@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, 9999], ids=["unknown to the broker", "unknown here"])
@pytest.mark.parametrize("of_all", [False, True], ids=["of a partition", "of the answer"])
def test_trouble_inside_a_broker_may_pass(broker, of_all, code):
    """Such as that of a store of tiered segments; Java's consumer asks again, too."""
    broker.partitions = {0: filled(2)}
    if of_all:
        broker.fetch_errors = [code] * 3
    else:
        broker.partitions[0].error = code

    def recover(_: object) -> None:
        if len(broker.fetches) == 4:
            broker.partitions[0].error = 0

    broker.on_fetch = recover
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 20))) == {0: list(range(20))}
    assert len(broker.fetches) == 5


@pytest.mark.parametrize("of_all", [False, True], ids=["of a partition", "of the answer"])
def test_trouble_inside_a_broker_that_does_not_pass_is_told_in_the_end(broker, of_all):
    broker.partitions = {0: filled(1)}
    broker.fetch_errors = [UNKNOWN_SERVER_ERROR] * 100 if of_all else []
    broker.partitions[0].error = UNKNOWN_SERVER_ERROR
    problem = rf"{TOPIC}-0 at offset 0; the last problem was: .*{TOPIC}-0 .*UNKNOWN_SERVER_ERROR"
    with pytest.raises(RetriableError, match=problem):
        read(engine(broker), request(Range(TOPIC, 0, 0, 10), timeout_ms=700))


@pytest.mark.parametrize("begin", [0, 10], ids=["after it records came", "after it an answer came"])
def test_a_problem_that_has_passed_is_not_told(broker, begin):
    broker.partitions = {0: filled(2)}
    broker.partitions[0].held_back = 10
    broker.partitions[0].error = UNKNOWN_SERVER_ERROR

    def recover(_: object) -> None:
        if len(broker.fetches) == 2:
            broker.partitions[0].error = 0

    broker.on_fetch = recover
    asked = replace(request(Range(TOPIC, 0, begin, 20), timeout_ms=1500), read_committed=True)
    with pytest.raises(RetriableError, match=rf"{TOPIC}-0 at offset 10$"):
        read(engine(broker), asked)


@pytest.mark.parametrize("by_name", [False, True], ids=["during a read", "before the ids are compared"])
def test_a_task_waits_for_brokers_that_are_away(broker, monkeypatch, by_name):
    """They are away for longer than a lookup of leaders takes, and a client that rebootstraps knows no topic."""
    monkeypatch.setattr(native_reader, "_LOOKUP_SECONDS", 0.3)
    broker.partitions = {0: filled(2)}
    if by_name:
        broker.answer(FetchMessage, 12)

    def leave(_: object) -> None:
        if len(broker.fetches) == 2:
            broker.is_away = True
            threading.Timer(2.0, setattr, (broker, "is_away", False)).start()
            if not by_name:
                raise Silence

    broker.on_fetch = leave
    asked = request(Range(TOPIC, 0, 0, 20), topics={TOPIC: id_text(broker)}, loss_patience_ms=100)
    assert read(engine(broker), asked) == {0: list(range(20))}


def test_the_time_while_brokers_are_away_tells_nothing_of_a_topic(broker, monkeypatch):
    """A broker that has just started may lack a topic for a moment, before they were away and after that, too."""
    monkeypatch.setattr(native_reader, "_LOOKUP_SECONDS", 0.3)
    log, lacks = {0: filled(2)}, [False, True, True, False]

    def describe(asked: Any, connection: int) -> Any:
        # The first request of a connection to an address of `bootstrap.servers` names no topic.
        if asked.topics:
            broker.partitions = {} if lacks.pop(0) else log
            if len(lacks) == 2:
                broker.is_away = True
                threading.Timer(1.0, setattr, (broker, "is_away", False)).start()
        return broker._metadata(asked, connection)

    broker.answer(MetadataRequest, 13, describe)
    broker.fetch_errors = [NOT_LEADER]
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 20), loss_patience_ms=500)) == {0: list(range(20))}
    assert not lacks


def test_brokers_that_stay_away_are_told_in_the_end(broker, monkeypatch):
    monkeypatch.setattr(native_reader, "_LOOKUP_SECONDS", 0.3)
    broker.partitions = {0: filled(1)}
    reader = engine(broker)
    assert read(reader, request(Range(TOPIC, 0, 0, 10))) == {0: list(range(10))}
    broker.is_away = True
    with pytest.raises(RetriableError, match=r"within 1500 ms .* the last problem was: No broker of kafka.bootstrap"):
        read(reader, request(Range(TOPIC, 0, 0, 10), timeout_ms=1500, loss_patience_ms=100))


def test_brokers_that_never_answered_are_an_error_soon(broker):
    broker.is_away = True
    began = time.monotonic()
    with pytest.raises(BootstrapError):
        read(engine(broker), request(Range(TOPIC, 0, 0, 10)))
    assert time.monotonic() - began < 10


def test_a_fetch_that_the_brokers_refuse_is_an_error_at_once(broker):
    broker.partitions = {0: Partition(error=TOPIC_AUTHORIZATION_FAILED, end=10)}
    with pytest.raises(AuthenticationError, match=rf"{TOPIC}-0 at offset 0"):
        read(engine(broker), request(Range(TOPIC, 0, 0, 10)))
    assert len(broker.fetches) == 1


def test_the_pause_that_a_broker_asks_for_holds_at_the_end_of_a_session_too(broker):
    broker.partitions = {0: filled(3)}
    broker.session_ms, broker.throttle_ms = 200, 600
    assert read(engine(broker, **LOGIN), request(Range(TOPIC, 0, 0, 30))) == {0: list(range(30))}
    assert all(later - sooner >= 0.6 for (sooner, *_), (later, *_) in pairwise(broker.fetches))
    # Each fetch comes after the session's end, on a new connection.
    assert len({connection for _, connection, _ in broker.fetches}) == 3


def test_pauses_grow_while_a_throttling_broker_answers_with_nothing(broker, monkeypatch):
    monkeypatch.setattr(protocol, "PATIENCE_MS", 100)
    broker.partitions = {0: filled(1)}
    broker.throttle_ms, broker.in_vain = 20, 10
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 10))) == {0: list(range(10))}
    pauses = [later - sooner for (sooner, *_), (later, *_) in pairwise(broker.fetches)]
    assert len(pauses) == 10
    assert all(pause >= 0.02 for pause in pauses)
    assert all(pause >= least for pause, least in zip(pauses[7:], (0.04, 0.08, 0.16), strict=True))


def test_a_short_session_is_used_for_most_of_its_time(broker):
    broker.partitions = {0: filled(10)}
    broker.session_ms = 8_000
    assert read(engine(broker, **LOGIN), request(Range(TOPIC, 0, 0, 100))) == {0: list(range(100))}
    assert len({connection for _, connection, _ in broker.fetches}) == 1


@pytest.mark.parametrize(
    ("claim", "fetches"), [(1 << 29, 2), ((1 << 30) + 1, 1), (2**31 - 13, 1)], ids=["cut twice", "too much", "most"]
)
def test_a_batch_that_claims_more_than_there_is_is_corrupt(broker, claim, fetches):
    partition = filled(2)
    damaged = bytearray(partition.batches[10])
    struct.pack_into(">i", damaged, 8, claim - 12)
    partition.batches[10] = bytes(damaged)
    broker.partitions = {0: filled(2), 1: partition}
    with pytest.raises(CorruptRecordsError, match=rf"{TOPIC}-1 at offset 10 .* claims to have {claim}") as caught:
        read(engine(broker), request(Range(TOPIC, 0, 0, 20), Range(TOPIC, 1, 0, 20)))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 1, 10)
    assert [asked.get(1) for _, _, asked in broker.fetches].count(10) == fetches


def test_a_batch_that_is_cut_off_at_the_fetch_size_is_fetched_whole(broker):
    whole = filled(1, value=b"x" * 20_000)
    cut = Partition({0: whole.batches[0][:65_536]}, end=10)
    broker.partitions = {0: cut}

    def give(asked) -> None:
        if asked.topics[0].partitions[0].partition_max_bytes >= len(whole.batches[0]):
            cut.batches[0] = whole.batches[0]

    broker.on_fetch = give
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 10))) == {0: list(range(10))}
    assert len(broker.fetches) == 2


GZIP = 1


def test_a_batch_that_unpacks_to_too_much_names_the_engine_that_reads_it(broker):
    partition = filled(1)
    partition.add(1, value=b"x" * (256 << 20), codec=GZIP)
    broker.partitions = {0: partition}
    what = rf"{TOPIC}-0 at offset 10 .* unpacks to more than 256 MiB; engine=librdkafka has other bounds"
    with pytest.raises(UnreadableRecordError, match=what):
        read(engine(broker), request(Range(TOPIC, 0, 0, 11)))


def test_a_record_that_is_no_text_names_its_column(broker):
    partition = filled(1)
    partition.add(1, value=b"\xff\xfe")
    broker.partitions = {0: partition}
    text = (*COLUMNS, Column("value", text=True))
    with pytest.raises(UnreadableRecordError, match=rf"{TOPIC}-0 at offset 10 .*: the value is not UTF-8 .* as binary"):
        read(engine(broker), request(Range(TOPIC, 0, 0, 11), columns=text))


class Measured(Pacer):
    """Bounds nothing, and remembers what an offset is measured to have."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[float] = []

    def measured(self, tp: TopicPartition, size: float, offsets: int) -> None:
        self.sizes.append(size / offsets)


@pytest.mark.parametrize("asked", [(0, 1000), (0, 10), (500, 501), (999, 1000)])
def test_an_offset_has_the_bytes_of_its_batch_whatever_part_of_that_is_asked_for(broker, asked):
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(1000, value=b"v" * 200)
    pacer, reader = Measured(), engine(broker)
    assert read(reader, request(Range(TOPIC, 0, *asked), pacer=pacer)) == {0: list(range(*asked))}
    whole = len(broker.partitions[0].at(0))
    assert pacer.sizes == [whole / 1000]
    assert reader.record_bytes == {TOPIC: whole / 1000}
    assert reader.batch_bytes == {TOPIC: whole}


def of_grants(max_bytes: float) -> Pacer:
    return Pacer(0, lambda _: Grant(0.0, max_bytes, inf))


@pytest.mark.parametrize(
    ("pacer", "largest"), [(Pacer(), 16 << 20), (of_grants(inf), 16 << 20), (of_grants(1e9), NEAR_BYTES)]
)
def test_a_task_asks_a_far_broker_for_more_unless_a_quota_holds_it_back(broker, monkeypatch, pacer, largest):
    monkeypatch.setattr(protocol.FetchConnection, "round_trip", 1.0)
    broker.partitions = {0: Partition()}
    for _ in range(6):
        broker.partitions[0].add(1, value=b"v" * (5 << 20))
    sizes: list[int] = []

    def answered_late(request) -> None:
        sizes.append(request.max_bytes)
        if len(sizes) == 1:
            time.sleep(0.5)

    broker.on_fetch = answered_late
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 6), pacer=pacer)) == {0: list(range(6))}
    assert max(sizes) == largest


@pytest.mark.parametrize("limits", [{"loss_patience_ms": 200}, {"timeout_ms": 500}], ids=["patience", "time-out"])
def test_a_topic_created_anew_is_not_read_with_the_old_ones_offsets(broker, limits):
    broker.partitions = {0: filled(2)}
    reader, planned = engine(broker), id_text(broker)
    assert read(reader, request(Range(TOPIC, 0, 0, 10), topics={TOPIC: planned})) == {0: list(range(10))}
    broker.topic_id = uuid.uuid4()
    # The broker that was asked last has said that the old one is there, until something else is wrong.
    broker.partitions[0].error = NOT_LEADER
    asked = request(Range(TOPIC, 0, 10, 20), topics={TOPIC: planned}, **limits)
    with pytest.raises(DataLossError, match=f"{TOPIC}-0 .* offset 10: .* again: its id is now") as caught:
        read(reader, asked)
    assert str(id_text(broker)) in str(caught.value)
    broker.partitions[0].error = 0
    fetches = len(broker.fetches)
    assert read(reader, replace(asked, fail_on_data_loss=False)) == {}
    assert len(broker.fetches) == fetches


def test_a_topic_created_anew_between_two_fetches_is_refused_by_its_id(broker):
    broker.partitions = {0: filled(4)}

    def create_again(_) -> None:
        if len(broker.fetches) == 2:
            broker.topic_id = uuid.uuid4()

    broker.on_fetch = create_again
    planned = id_text(broker)
    asked = request(Range(TOPIC, 0, 0, 40), topics={TOPIC: planned}, loss_patience_ms=200, fail_on_data_loss=False)
    assert read(engine(broker), asked) == {0: list(range(10))}
    assert len(broker.fetches) == 2
    with pytest.raises(DataLossError, match=f"{TOPIC}-0 .* again: its id is now {re.escape(str(id_text(broker)))}"):
        read(engine(broker), replace(asked, fail_on_data_loss=True))


def test_brokers_and_topics_without_ids_are_asked_by_name(broker):
    broker.partitions = {0: filled(1)}
    whole = request(Range(TOPIC, 0, 0, 10))
    assert read(engine(broker), whole) == {0: list(range(10))}
    assert broker.fetched_topics == [[broker.topic_id]]
    broker.topic_id = uuid.UUID(int=0)
    assert read(engine(broker), whole) == {0: list(range(10))}
    broker.topic_id = uuid.uuid4()
    broker.answer(FetchMessage, 12)
    assert read(engine(broker), whole) == {0: list(range(10))}
    assert broker.fetched_topics[-2:] == [[TOPIC], [TOPIC]]


def test_a_task_with_the_new_topics_id_looks_again_once(broker):
    broker.partitions = {0: filled(1)}
    reader = engine(broker)
    whole = Range(TOPIC, 0, 0, 10)
    assert read(reader, request(whole)) == {0: list(range(10))}
    broker.topic_id = uuid.uuid4()
    asked = broker.asked.count("MetadataRequest")
    for _ in range(3):
        assert read(reader, request(whole, topics={TOPIC: id_text(broker)})) == {0: list(range(10))}
    assert broker.asked.count("MetadataRequest") == asked + 1


def test_topics_that_were_moved_here_have_other_ids(broker):
    broker.partitions = {0: filled(1)}
    moved = engine(broker, **{"cluster.moved.from": "there"})
    asked = request(Range(TOPIC, 0, 0, 10), cluster="there", topics={TOPIC: "another"})
    assert read(moved, asked) == {0: list(range(10))}


def elect_during_the_second_fetch(broker: FakeBroker, *, kept: int) -> None:
    """The new leader has the first `kept` records of the old one's log, and has written more since."""

    def elect(_) -> None:
        if len(broker.fetches) == 2:
            log = Partition(leader_epoch=4, error=NOT_LEADER)
            log.add(kept, leader_epoch=3)
            log.add(26 - kept, leader_epoch=4)
            broker.partitions[0] = log
        else:
            broker.partitions[0].error = 0

    broker.partitions = {0: filled(2, leader_epoch=3)}
    broker.partitions[0].leader_epoch = 3
    broker.ends_of_epochs = {3: kept}
    broker.on_fetch = elect


def test_a_new_leader_with_all_that_was_read_is_read_on(broker):
    elect_during_the_second_fetch(broker, kept=10)
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 26))) == {0: list(range(26))}
    assert broker.asked.count("OffsetForLeaderEpochRequest") == 1


def test_a_new_leader_without_what_was_read_is_a_loss(broker):
    elect_during_the_second_fetch(broker, kept=6)
    with pytest.raises(DataLossError, match=rf"{TOPIC}-0 .* offset 10: its log was truncated to offset 6, ") as loss:
        read(engine(broker), request(Range(TOPIC, 0, 0, 26)))
    assert (loss.value.planned, loss.value.truncated_to) == (10, 6)


def test_without_fail_on_data_loss_what_a_new_leader_wrote_instead_is_read(broker):
    elect_during_the_second_fetch(broker, kept=6)
    found = read(engine(broker), request(Range(TOPIC, 0, 0, 26), fail_on_data_loss=False))
    assert found == {0: [*range(10), *range(6, 26)]}


@pytest.mark.parametrize("kept", [0, 6, 10, 16])
def test_a_new_leader_without_what_was_planned_is_a_loss_of_the_rest(broker, kept):
    """The next micro-batch begins where the logs diverge, so a task of this one reads nothing of the other log."""
    elect_during_the_second_fetch(broker, kept=kept)
    planned = Range(TOPIC, 0, 0, 20, epoch=3)
    assert read(engine(broker), request(planned, fail_on_data_loss=False)) == {0: list(range(max(10, kept)))}
    elect_during_the_second_fetch(broker, kept=kept)
    broker.fetches.clear()
    with pytest.raises(DataLossError, match=rf"from offset {kept} on, the leader of epoch 4 .* of epoch 3") as loss:
        read(engine(broker), request(planned))
    assert loss.value.truncated_to == kept


def test_an_election_between_plan_and_task_is_noticed_before_anything_is_read(broker):
    broker.partitions = {0: filled(2, leader_epoch=4)}
    broker.partitions[0].leader_epoch = 4
    broker.ends_of_epochs = {3: 6}
    planned = request(Range(TOPIC, 0, 5, 20, epoch=3), fail_on_data_loss=False)
    assert read(engine(broker), planned) == {0: [5]}
    assert read(engine(broker), request(Range(TOPIC, 0, 8, 20, epoch=3), fail_on_data_loss=False)) == {}
    with pytest.raises(DataLossError, match="from offset 6 on"):
        read(engine(broker), request(Range(TOPIC, 0, 5, 20, epoch=3)))
    # What both logs have is read, and no election costs nothing.
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 6, epoch=3))) == {0: list(range(6))}
    asked = broker.asked.count("OffsetForLeaderEpochRequest")
    assert read(engine(broker), request(Range(TOPIC, 0, 0, 20, epoch=4))) == {0: list(range(20))}
    assert broker.asked.count("OffsetForLeaderEpochRequest") == asked


def test_the_settings_of_fetches_are_those_of_java(broker):
    """`fetch.max.bytes` bounds a response, `max.partition.fetch.bytes` each partition in it."""
    seen: list[Any] = []
    broker.on_fetch = seen.append
    broker.partitions = {0: filled(2), 1: filled(2)}
    ours = {
        "fetch.min.bytes": "7",
        "fetch.max.wait.ms": "123",
        "fetch.max.bytes": "150000",
        "max.partition.fetch.bytes": "100000",
    }
    whole = [Range(TOPIC, number, 0, 20) for number in (0, 1)]
    reader = engine(broker, **ours)
    reader.record_bytes = {TOPIC: 1_000_000.0}
    assert read(reader, request(*whole)) == {0: list(range(20)), 1: list(range(20))}
    first = seen[0]
    assert (first.min_bytes, first.max_wait_ms, first.max_bytes) == (7, 123, 150_000)
    assert [p.partition_max_bytes for topic in first.topics for p in topic.partitions] == [100_000, 100_000]
    # Nobody has to fit what Java takes into a buffer of 2 GiB.
    most = engine(broker, **{"fetch.max.bytes": "2147483647", "max.partition.fetch.bytes": "2147483647"})
    assert (most.max_bytes, most.max_partition_bytes) == (FAR_BYTES, FAR_BYTES)


def test_the_buffers_of_sockets_have_the_size_of_the_settings(broker):
    broker.partitions = {0: filled(1)}
    small = {"receive.buffer.bytes": "20000", "send.buffer.bytes": "30000"}
    sizes = []
    for settings in ({}, {"receive.buffer.bytes": "-1", "send.buffer.bytes": "-1"}, small):
        with closing(KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers, **settings}))) as client:
            with closing(client.open_socket(client.settings.bootstrap[0])) as raw:
                options = (socket.SO_RCVBUF, socket.SO_SNDBUF)
                sizes.append([raw.socket.getsockopt(socket.SOL_SOCKET, option) for option in options])
    assert sizes[0] == sizes[1]
    # Linux doubles them, for its own bookkeeping.
    assert all(given <= found <= 2 * given for given, found in zip((20_000, 30_000), sizes[2], strict=True))


@pytest.mark.parametrize("trouble", [[], [UNKNOWN_SERVER_ERROR]], ids=["", "after trouble inside the broker"])
def test_a_leader_that_is_behind_the_offset_is_asked_again_until_it_has_it(broker, trouble):
    broker.partitions = {0: filled(1)}
    broker.offset_errors = trouble

    def catch_up(_: object) -> None:
        if len(broker.fetches) == 3:
            broker.partitions[0].add(20)

    broker.on_fetch = catch_up
    assert read(engine(broker), request(Range(TOPIC, 0, 20, 30))) == {0: list(range(20, 30))}
    assert len(broker.fetches) == 3


def test_a_leader_that_stays_behind_the_offset_has_lost_it(broker):
    broker.partitions = {0: filled(1)}
    with pytest.raises(DataLossError, match=rf"{TOPIC}-0 cannot be read from offset 20: .*\[0, 10\)"):
        read(engine(broker), request(Range(TOPIC, 0, 20, 30), loss_patience_ms=500))
    assert len(broker.fetches) > 2


@pytest.mark.parametrize(
    "planned", [6, -1], ids=["whose epoch is older than the plan's", "whose log ends before the plan"]
)
def test_a_broker_that_takes_itself_for_the_leader_is_left_for_another_ones_word(broker, planned):
    """It is cut off from its controllers: its metadata and its log are those of before the election."""
    elected = FakeBroker(node=2)
    with closing(elected):
        broker.peers, elected.peers, elected.topic_id = [elected], [broker], broker.topic_id
        broker.partitions = {0: filled(1, leader_epoch=5)}
        broker.partitions[0].leader_epoch = 5
        log = elected.partitions[0] = filled(1, leader_epoch=5)
        log.add(10, leader_epoch=6)
        log.leader, log.leader_epoch, elected.ends_of_epochs = 2, 6, {5: 10}
        reader = engine(broker, **{"metadata.max.age.ms": "600000"})
        asked = request(Range(TOPIC, 0, 0, 20, epoch=planned), loss_patience_ms=5_000)
        assert read(reader, asked) == {0: list(range(20))}
        assert bool(broker.fetches) is (planned < 0)


def test_older_epochs_are_believed_after_the_patience(broker):
    """The cluster was restored from a backup, with its ids."""
    broker.partitions = {0: filled(2, leader_epoch=1)}
    broker.partitions[0].leader_epoch = 1
    asked = request(Range(TOPIC, 0, 0, 20, epoch=3), loss_patience_ms=500)
    assert read(engine(broker), asked) == {0: list(range(20))}
