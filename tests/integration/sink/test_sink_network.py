"""An exactly-once sink and its brokers: answers lost, requests doubled, nodes killed between the steps."""

import os
import re
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_source.errors import DeliveryError, FencedError, KafkaGroupError, LostTransactionsError, NotVisibleError
from kafka_source.kafka_client import TRANSACTION, Deadline, cached_client, coordinator_versions
from kafka_source.kafka_client.messages import ApiVersions
from kafka_source.produce.protocol import BY_ID, BY_NAME, SECOND_BY_NAME
from kafka_source.produce.records import Records
from kafka_source.sink.two_phase import committer
from kafka_source.sink.two_phase.open_transactions import describe
from kafka_source.sink.two_phase.prepare import SinkTask, prepare
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame, TcpProxy, pass_on
from tests.support.records import CommittedReader, create_again
from tests.support.two_phase import SIGKILL, TASKS, Sink, as_records, set_transaction_version, visible, whole
from tests.support.waiting import wait_until

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT, DESCRIBE = 0, 24, 25, 26, 28, 65


class Broker:
    """A broker of its own behind a proxy."""

    def __init__(self, kafka: EmbeddedKafka, proxy: TcpProxy) -> None:
        self.kafka, self.proxy = kafka, proxy
        self._topics = 0

    def sink(self, **more: Any) -> Sink:
        self._topics += 1
        return Sink(self.kafka.bootstrap_servers, self.kafka.create_topic(f"network-{self._topics}"), **more)

    def versions(self, sink: Sink) -> ApiVersions:
        client = cached_client(sink.settings)
        return client.run(coordinator_versions(client, TRANSACTION, f"{sink.prefix}-driver", Deadline(30)))

    def check(self, sink: Sink, *batches: int) -> None:
        assert sink.visible(len(whole(*batches))) == whole(*batches)
        assert sink.open() == []


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with TcpProxy() as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        yield Broker(kafka, proxy)


@pytest.fixture
def broker(started: Broker) -> Iterator[Broker]:
    yield started
    started.proxy.on_request = started.proxy.on_response = pass_on


def test_f10_a_commit_that_arrives_again_while_the_next_batch_is_open_does_not_touch_it(broker: Broker) -> None:
    sink = broker.sink()
    kept: list[Frame] = []
    late: list[Frame] = []
    sent: set[tuple[int, int]] = set()

    def keep(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == END_TXN:
            kept.append(frame)
        elif frame.api_key == DESCRIBE and late:
            # A coordinator answers them in order; the client waits for the last answer alone.
            sent.update((frame.connection, one.correlation_id) for one in late)
            return [*(one.payload for one in late), frame.payload]
        return [frame.payload]

    def swallow(frame: Frame) -> Iterable[bytes]:
        return [] if (frame.connection, frame.correlation_id) in sent else [frame.payload]

    broker.proxy.on_request = keep
    sink.run(0)
    assert len(kept) == TASKS + 2  # the decision's own too, and that of the note that nothing is left to do
    epoch = sink.begin()
    prepared = sink.tasks(epoch, 1)
    broker.proxy.on_response = swallow
    late.extend(kept)
    assert len(sink.open()) == TASKS
    assert sent
    late.clear()
    assert sink.visible() == whole(0)
    sink.decide(epoch, 1, prepared)
    broker.check(sink, 0, 1)


def test_a_group_whose_coordinator_is_away_for_longer_than_the_decision_may_take_is_named(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The transaction's timeout is the most that readers of the groups' offsets wait.
    monkeypatch.setattr(committer, "_DECISION_TIMEOUT_MS", 8_000)
    sink = broker.sink()
    epoch = sink.begin()
    prepared = sink.tasks(epoch, 0)

    def away(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == TXN_OFFSET_COMMIT and not back.is_set():
            raise CutConnection
        return [frame.payload]

    back = threading.Event()
    threading.Timer(14, back.set).start()
    broker.proxy.on_request = away
    # And not "another process uses the same transactional id", when the broker has ended the transaction by itself.
    with pytest.raises(KafkaGroupError, match=r"lost|got no answer") as raised:
        sink.decide(epoch, 0, prepared)
    assert not isinstance(raised.value, FencedError)
    broker.proxy.on_request = pass_on
    sink.run(0)
    broker.check(sink, 0)


@pytest.mark.requires_native
def test_tasks_write_in_the_newest_protocol_of_transactions_that_the_brokers_have(broker: Broker) -> None:
    sink = broker.sink()
    versions = broker.versions(sink)
    seen: Counter[tuple[int, int]] = Counter()

    def count(frame: Frame) -> Iterable[bytes]:
        if re.search(rf"{sink.prefix}-\d-\d".encode(), frame.payload):
            seen[frame.api_key, frame.api_version] += 1
        return [frame.payload]

    broker.proxy.on_request = count
    sink.run(0, 1)
    second = versions.features.get("transaction.version", 0) >= 2
    newest = (BY_ID if versions.has(PRODUCE, BY_ID) else SECOND_BY_NAME) if second else BY_NAME
    expected = {(PRODUCE, newest), (END_TXN, 5 if second else 3)} | (set() if second else {(ADD_PARTITIONS, 3)})
    asked = {one: count for one, count in seen.items() if one[0] in (PRODUCE, ADD_PARTITIONS, END_TXN)}
    assert asked == dict.fromkeys(expected, 2 * TASKS)
    client = cached_client(sink.settings)
    # In the second protocol EndTxn raises it.
    last = client.run(describe(client, f"{sink.prefix}-0-0", Deadline(30))).transaction
    assert last.epoch == (1 if second else 0)
    broker.check(sink, 0, 1)


@pytest.mark.requires_native
def test_a_topic_that_is_created_again_in_the_middle_of_a_transaction_is_not_written(broker: Broker) -> None:
    sink = broker.sink()
    if not broker.versions(sink).has(PRODUCE, BY_ID):
        pytest.skip("these brokers know topics by name only")
    acknowledged = threading.Event()

    def watch(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == PRODUCE:
            acknowledged.set()
        return [frame.payload]

    def rows() -> Iterator[Records]:
        while not acknowledged.is_set():
            yield as_records([b"of the old topic"], sink.topic)
            time.sleep(0.02)
        broker.kafka.delete_topic(sink.topic)
        create_again(broker.kafka, sink.topic, 1)
        yield as_records([b"of the new topic"], sink.topic)

    epoch = sink.begin()
    broker.proxy.on_response = watch
    with pytest.raises(DeliveryError, match="deleted and created again"):
        prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, 0), epoch, rows())
    assert sink.visible(isolation="read_uncommitted") == []
    sink.abort(epoch)
    sink.run(0)
    broker.check(sink, 0)


@pytest.mark.long
@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("moment", ["sink-decided", "sink-half-committed"])
def test_a_decision_is_completed_in_the_protocol_of_its_transactions(broker: Broker, before: int, moment: str) -> None:
    sink = broker.sink()
    if "transaction.version" not in broker.versions(sink).features:
        pytest.skip("these brokers have one protocol only")
    try:
        set_transaction_version(broker.kafka, before)
        killed = sink.in_a_process(moment, 0)
        assert killed == SIGKILL
        set_transaction_version(broker.kafka, 3 - before)
        # The connections that the client has would not tell.
        cached_client(sink.settings).close()
        ended: list[int] = []

        def watch(frame: Frame) -> Iterable[bytes]:
            if frame.api_key == END_TXN and re.search(rf"{sink.prefix}-\d-\d".encode(), frame.payload):
                ended.append(frame.api_version)
            return [frame.payload]

        broker.proxy.on_request = watch
        sink.run(0, 1)
        assert ended == TASKS * [3 if before == 1 else 5] + TASKS * [5 if before == 1 else 3]
        broker.check(sink, 0, 1)
    finally:
        set_transaction_version(broker.kafka, 2)


@pytest.mark.parametrize("api_key", [PRODUCE, ADD_OFFSETS, TXN_OFFSET_COMMIT, END_TXN])
@pytest.mark.parametrize("direction", ["request", "response"])
def test_f11_a_lost_request_or_answer_of_a_batch_is_sent_again(broker: Broker, api_key: int, direction: str) -> None:
    sink = broker.sink()
    lost: list[Frame] = []

    def lose(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == api_key and len(lost) < 2:
            lost.append(frame)
            raise CutConnection
        return [frame.payload]

    setattr(broker.proxy, f"on_{direction}", lose)
    sink.run(0, 1)
    assert len(lost) == 2
    broker.check(sink, 0, 1)


@pytest.mark.parametrize("code", [-1, 42, 53])
def test_a_commit_that_is_refused_for_another_reason_than_being_gone_is_made_later(broker: Broker, code: int) -> None:
    sink, ended = broker.sink(), []

    def refuse(frame: Frame) -> Iterable[bytes]:
        if frame.api_key != END_TXN:
            return [frame.payload]
        ended.append(frame)
        # After correlation id, tags and throttle time; the first one is the decision itself.
        return [
            frame.payload
            if len(ended) != 2
            else frame.payload[:9] + code.to_bytes(2, "big", signed=True) + frame.payload[11:]
        ]

    epoch = sink.begin()
    prepared = sink.tasks(epoch, 0)
    broker.proxy.on_response = refuse
    with pytest.raises(KafkaGroupError, match=f"epoch .* failed: .*{code}") as caught:
        sink.decide(epoch, 0, prepared)
    assert not isinstance(caught.value, LostTransactionsError)
    broker.proxy.on_response = pass_on
    sink.run(0, 1)
    broker.check(sink, 0, 1)


def test_a_task_whose_records_nobody_takes_leaves_no_half_batch(broker: Broker) -> None:
    sink = broker.sink(settings={"delivery.timeout.ms": "3000"})
    epoch = sink.begin()
    sink.task(epoch, 0, 0)
    broker.proxy.on_request = lambda frame: [] if frame.api_key == PRODUCE else [frame.payload]
    with pytest.raises(DeliveryError):
        sink.task(epoch, 0, 1)
    broker.proxy.on_request = pass_on
    sink.abort()
    assert sink.open() == []
    assert sink.visible() == []
    sink.run(0)
    broker.check(sink, 0)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_f41_a_broker_whose_disk_is_full_leaves_no_half_batch(broker: Broker) -> None:
    sink = broker.sink(settings={"delivery.timeout.ms": "5000"})
    epoch = sink.begin()
    sink.task(epoch, 0, 0)
    pid = broker.kafka.pid()
    assert pid is not None
    # No file can grow beyond this, as on a disk that is full; Kafka's index files have 10 MiB from the start.
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (12 << 20, limits[1]))
    large = as_records([os.urandom(500_000) for _ in range(40)], sink.topic)
    with pytest.raises(DeliveryError):
        prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, 1), epoch, [large])
    # It has no other folder to go on with, so it ends itself.
    wait_until(lambda: not broker.kafka.is_running(), "the broker to give up")
    assert "storage" in broker.kafka.log().lower()
    broker.kafka.restart()
    sink.abort()
    assert sink.open() == []
    assert sink.visible() == []
    sink.run(0)
    broker.check(sink, 0)


@pytest.mark.timeout(180)
def test_f14_a_broker_killed_between_prepare_and_commit(broker: Broker) -> None:
    sink = broker.sink()
    with CommittedReader(broker.kafka.bootstrap_servers, sink.topic) as reader:
        epoch = sink.begin()
        prepared = sink.tasks(epoch, 0)
        broker.kafka.kill()
        with ThreadPoolExecutor(1) as pool:
            deciding = pool.submit(sink.decide, epoch, 0, prepared, 120)
            broker.kafka.restart()
            deciding.result(150)
        broker.check(sink, 0)
        reader.wait_for(TASKS * 20)
        assert reader.values == whole(0)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_f15_a_lone_broker_killed_right_after_the_commit_is_noticed_if_it_forgets(broker: Broker) -> None:
    sink = broker.sink()
    epoch = sink.begin()
    prepared = sink.tasks(epoch, 0)
    answered, killed = [], threading.Event()

    def kill_after_the_last(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == END_TXN:
            answered.append(frame)
            if len(answered) == TASKS + 1:
                broker.kafka.kill()
                killed.set()
        return [frame.payload]

    broker.proxy.on_response = kill_after_the_last
    with ThreadPoolExecutor(1) as pool:
        deciding = pool.submit(sink.decide, epoch, 0, prepared, 120)
        assert killed.wait(60)
        broker.proxy.on_response = pass_on
        broker.kafka.restart()
        try:
            deciding.result(150)
        except NotVisibleError as error:
            # The markers are lost (seen in 3 of 7 tries): it is told where, and can be repaired.
            assert {tp.topic for tp in error.partitions} == {sink.topic}
            arguments = ["transactions", "repair", "-p", sink.prefix, "-t", sink.topic, "--yes"]
            result = CliRunner().invoke(app, [*arguments, "-b", broker.kafka.bootstrap_servers])
            assert "commit markers" in result.output, result.output
    broker.check(sink, 0)


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    config = {"default.replication.factor": 3, "min.insync.replicas": 2}
    with EmbeddedKafka(nodes=3, config=config) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", [1, 2, 3])
@pytest.mark.parametrize("moment", ["while-preparing", "before-deciding", "while-deciding", "after-deciding"])
def test_f15_f16_one_of_three_brokers_is_killed(three: EmbeddedKafka, victim: int, moment: str) -> None:
    """Whatever it is: coordinator of transactions or groups, leader of the partition, or all of them."""
    name = three.create_topic(f"three-{victim}-{moment}", replication_factor=3)
    sink = Sink(three.bootstrap_servers, name)
    with CommittedReader(three.bootstrap_servers, name) as reader, ThreadPoolExecutor(1) as pool:
        sink.run(0)
        if moment == "while-preparing":
            doing = pool.submit(sink.run, 1)
            three.kill(victim)
            doing.result(120)
        else:
            epoch = sink.begin()
            prepared = sink.tasks(epoch, 1)
            if moment == "before-deciding":
                three.kill(victim)
            doing = pool.submit(sink.decide, epoch, 1, prepared, 120)
            if moment == "while-deciding":
                three.kill(victim)
            doing.result(150)
            if moment == "after-deciding":
                three.kill(victim)
        three.restart(victim)
        sink.run(2)
        assert visible(three.bootstrap_servers, name, TASKS * 60) == whole(0, 1, 2)
        reader.wait_for(TASKS * 60)
        assert reader.values == whole(0, 1, 2)
        reader.check_order()
        wait_until(lambda: sink.open() == [], "no open transaction")


def test_a_broker_that_answers_nothing_is_told_within_the_deadline(broker: Broker) -> None:
    sink = broker.sink()
    epoch = sink.begin()
    prepared = sink.tasks(epoch, 0)
    broker.proxy.on_request = lambda frame: [] if frame.api_key == ADD_OFFSETS else [frame.payload]
    with pytest.raises(KafkaGroupError):
        sink.decide(epoch, 0, prepared, seconds=3)
    broker.proxy.on_request = pass_on
    assert sink.visible() == []
    sink.run(0)
    broker.check(sink, 0)
