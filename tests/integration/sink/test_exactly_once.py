"""The exactly-once sink: two-phase commit with its tasks and driver killed between the steps."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from assignors.model import TopicPartition as TP
from kafka_source.client_config import Settings
from kafka_source.commits.source_offsets import SourceOffsets
from kafka_source.datasource import register
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError, LostTransactionsError
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.produce.delivery import in_transaction
from kafka_source.produce.records import Records
from kafka_source.runtime.deadline import Deadline as Wait
from kafka_source.runtime.failpoints import install
from kafka_source.sink.exactly_once import check_timeout
from kafka_source.sink.two_phase import ledger, visibility
from kafka_source.sink.two_phase.committer import PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.ledger import Decision, Ledger
from kafka_source.sink.two_phase.open_transactions import describe
from kafka_source.sink.two_phase.prepare import IDS_OF_TASK, Prepared, SinkTask, prepare
from kafka_source.transactions.offset_transaction import GroupOffsets, add_offsets, commit_in
from kafka_source.transactions.open_transaction import OpenTransaction, end, initialise
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, create_again, run_to_end, to_topic
from tests.support.two_phase import SIGKILL, Sink, as_records, rows, take_over, visible, whole
from tests.support.waiting import wait_until

Hook = Callable[[Callable[[str], object] | None], None]


@pytest.fixture
def hook() -> Iterator[Hook]:
    """Installs a function that each failpoint of this process calls."""
    yield install
    install(None)


def test_batches_become_visible_once_and_nothing_stays_open(sink: Sink) -> None:
    for batch in range(3):
        sink.run(batch)
        assert sink.visible() == whole(*range(batch + 1))  # at once: the commit waits until it can be seen
        sink.run(batch)  # as Spark replays it
    assert sink.visible(180) == whole(0, 1, 2)
    assert sink.open() == []


@pytest.mark.parametrize(
    ("failpoint", "count_before_the_replay"),
    [
        ("task-flushed", 0),
        ("sink-prepared", 0),
        ("sink-decided", 0),
        ("sink-half-committed", 20),
        ("sink-committed", 60),
    ],
)
def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(
    sink: Sink, failpoint: str, count_before_the_replay: int
) -> None:
    sink.run(0)
    assert sink.visible(60) == whole(0)
    assert sink.in_a_process(failpoint, 1) == SIGKILL
    if count_before_the_replay == 0:
        assert sink.visible() == whole(0)
    assert sink.in_a_process("", 1) == 0
    assert sink.visible(120) == whole(0, 1)
    sink.run(2)
    assert sink.visible(180) == whole(0, 1, 2)
    assert sink.open() == []


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
@pytest.mark.parametrize("decides", [True, False])
def test_a_speculative_attempt_opens_nothing_after_its_batch(sink: Sink, engine: str, decides: bool) -> None:
    """Attempt 1 of task 0 runs beside attempt 0, and its worker outlives the batch by moments."""
    epoch = sink.begin()
    done = sink.tasks(epoch, 0)
    slow = in_transaction(sink.settings, f"{sink.prefix}-0-1", engine)  # it has sent nothing yet
    if decides:
        sink.decide(epoch, 0, done)
    else:
        sink.abort(epoch)
    with pytest.raises(KafkaGroupError):
        slow.send(as_records([b"late"], sink.topic))
        slow.flush()
    slow.abort()
    assert sink.open() == []
    with pytest.raises(FencedError, match="has ended already"):  # one that begins only now
        sink.task(epoch, 0, 0)
    assert sink.open() == []
    sink.run(0, 1)
    assert sink.visible(120) == whole(0, 1)


def test_an_attempt_is_fenced_once_and_not_in_every_batch_from_then_on(sink: Sink) -> None:
    epoch = sink.begin()
    in_transaction(sink.settings, f"{sink.prefix}-9-0", "auto")
    sink.decide(epoch, 0, sink.tasks(epoch, 0))

    def loser() -> OpenTransaction:
        client = cached_client(sink.settings)
        return client.run(describe(client, f"{sink.prefix}-9-0", Deadline(30))).transaction

    fenced = loser()
    sink.run(1, 2)
    assert loser() == fenced


def test_a_decided_batch_is_finished_even_if_the_ledger_was_deleted_before(sink: Sink, kafka: EmbeddedKafka) -> None:
    """Its number must be above the finished numbers, which are in a group of their own."""
    sink.run(0, 1)
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.delete_groups([f"{sink.prefix}-ledger"])
    assert sink.in_a_process("sink-decided", 2) == SIGKILL
    sink.run(3)
    assert sink.visible(240) == whole(0, 1, 2, 3)


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_task_neither_takes_anothers_transaction_for_its_own_nor_aborts_it(
    kafka: EmbeddedKafka, topic: Topic, hook: Hook, engine: str
) -> None:
    """An attempt that Spark has given up, and that still runs, may use the id between the last record and the look."""
    sink = Sink(kafka.bootstrap_servers, topic("eo-adopted"), engine=engine)
    epoch = sink.begin()

    def interfere(name: str) -> None:
        if name == "task-flushed":
            hook(None)
            foreign = in_transaction(sink.settings, f"{sink.prefix}-0-0", "auto")
            foreign.send(as_records([b"foreign"], sink.topic))
            foreign.flush()
            foreign.release()

    hook(interfere)
    with pytest.raises(FencedError, match=rf"Another process has initialised {sink.prefix}-0-0"):
        sink.task(epoch, 0, 0)
    # It may be the one that counts, and even be decided.
    assert [one.transactional_id for one in sink.open()] == [f"{sink.prefix}-0-0"]
    sink.abort(epoch)
    assert sink.visible() == []


@pytest.mark.parametrize(
    ("moment", "attempts", "told"),
    [
        # Before it fences the earlier attempts of its tasks.
        ("sink-committed", 1, None),
        # The next driver completes the decision, and a later attempt initialises the same transactional id again.
        ("sink-decided", IDS_OF_TASK, "That driver completes the decision"),
    ],
)
def test_a_driver_that_was_replaced_after_its_decision_leaves_alone_what_the_next_one_has_prepared(
    sink: Sink, hook: Hook, moment: str, attempts: int, told: str | None
) -> None:
    first = sink.begin()
    prepared = sink.task(first, 0, 0)
    assert prepared.transaction is not None
    suspended, resume = threading.Event(), threading.Event()

    def suspend(name: str) -> None:
        if name == moment and not suspended.is_set():
            suspended.set()
            resume.wait(60)

    hook(suspend)
    batch = PreparedBatch(sink.query, 0, {prepared.transaction: prepared.partitions})
    # With a client of its own, since the event loop of the others must go on.
    with closing(KafkaClient(sink.settings)) as late, ThreadPoolExecutor(1) as pool:
        deciding = pool.submit(late.run, TwoPhaseCommit(late, sink.prefix).commit(first, batch, Deadline(60)))
        assert suspended.wait(60)
        second = sink.begin()
        newer = [sink.task(second, 1, 0) for _ in range(attempts)][-1]
        assert newer.transaction is not None
        assert attempts == 1 or newer.transaction.transactional_id == prepared.transaction.transactional_id
        resume.set()
        with pytest.raises(FencedError, match=told):
            deciding.result(60)
        late.run(others_done())
    sink.decide(second, 1, [newer])
    assert sink.visible(40) == sorted(rows(0, 0) + rows(1, 0))


async def others_done() -> None:
    """Wait for the work that an error has left behind."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=30)


def die_while_deciding(sink: Sink, hook: Hook, moment: str, others: Records) -> None:
    """Decide about batch 0, of a record of the sink's topic and others, up to a failpoint."""
    epoch = sink.begin()
    both = [as_records([b"one"], sink.topic), others]
    prepared = prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, 0), epoch, both)

    def die(name: str) -> None:
        if name == moment:
            raise KafkaGroupError("The driver dies here.")

    hook(die)
    with pytest.raises(KafkaGroupError, match="dies here"):
        sink.decide(epoch, 0, [prepared])
    hook(None)


@pytest.mark.parametrize("moment", ["sink-decided", "sink-committed"])
@pytest.mark.parametrize("name", [pytest.param("eo-a-deleted", marks=pytest.mark.long), "eo-then-deleted"])
def test_a_topic_that_is_deleted_after_the_decision_takes_nothing_of_the_others_along(
    sink: Sink, kafka: EmbeddedKafka, topic: Topic, hook: Hook, moment: str, name: str
) -> None:
    deleted = topic(name)
    die_while_deciding(sink, hook, moment, as_records([b"two"], deleted))
    kafka.delete_topic(deleted)
    wait_until(lambda: deleted not in kafka.admin().list_topics(timeout=10).topics, "the topic to be gone")
    sink.run(0, 1)  # batch 0 is replayed
    assert sink.visible(61) == sorted([b"one", *whole(1)])


def test_nothing_is_committed_before_everybody_sees_the_decision(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, hook: Hook
) -> None:
    """As after the loss of the decision's marker: an offset in its place waits for the end of a transaction."""
    monkeypatch.setattr(ledger, "_MARKER_SECONDS", 2.0)
    client, epoch = cached_client(sink.settings), sink.begin()
    prepared = sink.tasks(epoch, 0)
    home = ledger.homes_of(tp for one in prepared for tp in one.partitions)[0]
    pending = client.run(initialise(client, f"{sink.prefix}-pending", 60_000, Deadline(30)))
    no_member = SlotCredentials.without_membership(f"{sink.prefix}-ledger")
    client.run(add_offsets(client, pending, GroupOffsets(no_member, {home: CommitOffset(1)}), Deadline(30)))
    seen: list[bool] = []
    right = Ledger.shows

    async def shows(self: Ledger, decision: Decision, deadline: Deadline) -> bool:
        seen.append(await right(self, decision, deadline))
        if len(seen) == 2:
            await end(client, pending, commit=False, deadline=Deadline(30))
        return seen[-1]

    def check(name: str) -> None:
        assert name != "sink-decided" or seen[-1]

    monkeypatch.setattr(Ledger, "shows", shows)
    hook(check)
    sink.decide(epoch, 0, prepared)
    assert seen == [False, False, True]
    assert sink.visible(60) == whole(0)
    assert sink.begin().covers(sink.query, 0)


def test_a_topic_that_is_created_again_with_fewer_partitions_after_the_decision_does_not_hold_the_sink_up(
    sink: Sink, kafka: EmbeddedKafka, topic: Topic, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visibility, "_DELETED_SECONDS", 1.0)
    again = topic("eo-smaller", partitions=3)
    die_while_deciding(sink, hook, "sink-committed", as_records([b"two"], again, [2]))
    kafka.delete_topic(again)
    create_again(kafka, again, 1)
    sink.run(0, 1)  # batch 0 is replayed
    assert sink.visible(61) == sorted([b"one", *whole(1)])


def test_a_driver_that_was_replaced_records_nothing_as_finished(sink: Sink) -> None:
    old = sink.begin()
    sink.decide(old, 0, sink.tasks(old, 0))
    client = cached_client(sink.settings)
    ledger = Ledger(client, sink.prefix)
    first = client.run(ledger.last(Deadline(30)))
    sink.run(1)
    assert first is not None
    with pytest.raises(FencedError):
        client.run(ledger.record_finished(old.finished, first, Deadline(30)))
    # Else batch 1 would be committed again, in transactions that the tasks of batch 2 have ended.
    sink.task(sink.begin(), 2, 0)
    sink.run(2)
    assert sink.visible(180) == whole(0, 1, 2)


def test_the_timeout_is_checked_without_fencing_anybody(sink: Sink) -> None:
    client = cached_client(sink.settings)
    client.run(check_timeout(client, sink.prefix, 900_000, Deadline(30)))
    with pytest.raises(
        InvalidConfigurationError, match=r"timeout\.ms=900001 is above .*transaction\.max\.timeout\.ms=900000"
    ):
        client.run(check_timeout(client, sink.prefix, 900_001, Deadline(30)))
    with pytest.raises(KafkaGroupError) as caught:
        client.run(describe(client, f"{sink.prefix}-driver", Deadline(30)))
    assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND  # nobody has initialised it
    epoch = sink.begin()
    client.run(check_timeout(client, sink.prefix, 900_000, Deadline(30)))
    sink.decide(epoch, 0, sink.tasks(epoch, 0))
    assert sink.visible(60) == whole(0)


@pytest.mark.parametrize("tasks", [0, 1, 200, 1000])
def test_a_decision_names_all_of_its_tasks_however_many(kafka: EmbeddedKafka, topic: Topic, tasks: int) -> None:
    name = topic("eo-many")
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    ledger = Ledger(client, name)
    partitions = tuple(TP(name, number) for number in (0, 1, 2, 5, *range(7, 7 + tasks)))

    def decision(number: int, count: int) -> Decision:
        transactions = tuple(
            OpenTransaction(f"{name}-{task}-0", 123_456 + task, 12_345, 1_234_567) for task in range(count)
        )
        return Decision(
            number, "0b6c2a52-6a1b-4f0c-9a53-5d1d6a6f0a41", 98_765, (TP(name, 0),), transactions, partitions
        )

    def new_epoch() -> OpenTransaction:
        return client.run(initialise(client, f"{name}-driver", 30_000, Deadline(30)))

    driver = new_epoch()
    for number, count in enumerate((tasks, tasks // 2, tasks), 1):
        wanted = decision(number, count)
        client.run(commit_in(client, driver, ledger.entries(wanted), Deadline(30)))
        driver = new_epoch()
        found = client.run(ledger.last(Deadline(30)))
        assert found == wanted
        assert found is not None
        assert [one.records for one in found.transactions] == [one.records for one in wanted.transactions]


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_task_whose_transaction_was_aborted_cannot_go_on_in_another(
    kafka: EmbeddedKafka, topic: Topic, engine: str
) -> None:
    at_once = {"linger.ms": "0"}
    sink = Sink(kafka.bootstrap_servers, topic("eo-goes-on", partitions=2), settings=at_once, engine=engine)
    epoch = sink.begin()

    def records() -> Iterator[Records]:
        yield as_records(rows(0, 0), sink.topic, [0] * 20)
        wait_until(lambda: len(sink.open()) == 1, "the transaction to be open")
        sink.abort(epoch)
        yield as_records(rows(0, 1), sink.topic, [1] * 20)

    with pytest.raises(KafkaGroupError):
        prepare(sink.settings, SinkTask(sink.prefix, "q", 0, 0), epoch, records(), engine)
    assert sink.open() == []
    assert sink.visible(partitions=2) == []


def test_tasks_without_rows_have_no_transaction(sink: Sink) -> None:
    epoch = sink.begin()
    empty = prepare(sink.settings, SinkTask(sink.prefix, "q", 0, 0), epoch, [])
    assert empty == Prepared(0)
    sink.decide(epoch, 0, [empty])
    epoch = sink.begin()
    sink.decide(epoch, 1, [empty, sink.task(epoch, 1, 1)])
    assert sink.visible(20) == sorted(rows(1, 1))


@pytest.mark.parametrize("later", [0, 1])
def test_nothing_stays_open_if_a_batch_fails_after_its_credentials_were_renewed(
    sink: Sink, group: str, later: int
) -> None:
    """Spark aborts the batch with the epoch that its tasks have returned; the commit has taken later epochs."""
    epoch = sink.begin()
    transactions = {one.transaction: one.partitions for one in sink.tasks(epoch, 0) if one.transaction is not None}

    def offsets(generation: int) -> tuple[GroupOffsets, ...]:
        stranger = SlotCredentials(group, generation, "member", "instance")
        return (GroupOffsets(stranger, {TP(sink.topic, 0): CommitOffset(1)}),)

    async def renew(_: FencedError, refused: Set[tuple[int, str]]) -> tuple[GroupOffsets, ...]:
        return offsets(1 + min(len(refused), later))

    client = cached_client(sink.settings)
    batch = PreparedBatch(sink.query, 0, transactions, SourceOffsets(offsets(1)))
    with pytest.raises(FencedError, match=group):
        client.run(TwoPhaseCommit(client, sink.prefix).commit(epoch, batch, Deadline(60), renew))
    sink.abort(epoch)
    assert sink.open() == []
    sink.run(0)
    assert sink.visible(60) == whole(0)


def lose_one(sink: Sink) -> str:
    """A driver dies after its decision about batch 5, and one of the transactions runs out of time."""
    assert sink.in_a_process("sink-decided", 5) == SIGKILL
    take_over(sink.settings["bootstrap.servers"], f"{sink.prefix}-2-0")
    return f"{sink.prefix}-2-0"


def test_a_transaction_that_is_gone_after_the_decision_is_a_hard_error_with_its_name(sink: Sink) -> None:
    lost = lose_one(sink)
    for _ in range(2):  # however often it is started
        with pytest.raises(
            LostTransactionsError, match=f"{lost} no longer exist.*records of the named transactions are lost"
        ) as caught:
            sink.run(5)
        assert caught.value.decided
        assert caught.value.transactional_ids == (lost,)


def test_what_is_gone_after_the_decision_is_written_again_from_the_replay(kafka: EmbeddedKafka, topic: Topic) -> None:
    sink = Sink(kafka.bootstrap_servers, topic("eo-repair"), replays=True)
    lose_one(sink)
    # Whatever the repair is interrupted by, it can be taken up again.
    assert sink.in_a_process("sink-prepared", 5) == SIGKILL
    assert sink.in_a_process("sink-half-committed", 5) == SIGKILL
    sink.run(5, 6)
    assert sink.visible(120) == whole(5, 6)
    assert sink.open() == []


def test_a_replay_with_other_rows_repairs_nothing(kafka: EmbeddedKafka, topic: Topic) -> None:
    sink = Sink(kafka.bootstrap_servers, topic("eo-other-rows"), replays=True)
    lost = lose_one(sink)
    epoch = sink.begin()
    records = as_records(rows(5, 2, count=19), sink.topic)
    fewer = prepare(sink.settings, SinkTask(sink.prefix, "q", 5, 2), epoch, [records])
    with pytest.raises(LostTransactionsError, match=lost):
        sink.decide(epoch, 5, [fewer])
    with pytest.raises(LostTransactionsError, match=lost):
        sink.run(6)  # another batch has not got them either
    sink.abort()
    assert sink.visible(40) == sorted(rows(5, 0) + rows(5, 1))


def test_a_replay_repairs_the_transactions_whose_rows_it_has_and_names_the_others(
    kafka: EmbeddedKafka, topic: Topic
) -> None:
    sink = Sink(kafka.bootstrap_servers, topic("eo-some-rows"), replays=True)
    lost = lose_one(sink)
    take_over(kafka.bootstrap_servers, f"{sink.prefix}-1-0")
    epoch = sink.begin()
    assert epoch.lost_count == 2
    records = as_records(rows(5, 2, count=19), sink.topic)
    fewer = prepare(sink.settings, SinkTask(sink.prefix, "q", 5, 2), epoch, [records])
    with pytest.raises(LostTransactionsError) as caught:
        sink.decide(epoch, 5, [sink.task(epoch, 5, 1), fewer])
    assert caught.value.transactional_ids == (lost,)
    assert sink.begin().lost_count == 1
    sink.abort()
    assert sink.visible(40) == sorted(rows(5, 0) + rows(5, 1))
    assert sink.open() == []


def test_a_batch_write_is_visible_as_a_whole(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic) -> None:
    register(spark)
    name = topic("eo-batch")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "transactional": "true"}
    options["transactional.id.prefix"] = name
    df = spark.range(0, 100, numPartitions=4).selectExpr("cast(id as string) as value")
    df.write.format("kafkagroup").mode("append").options(**options).save()
    assert visible(kafka.bootstrap_servers, name, 100) == sorted(str(i).encode() for i in range(100))
    broken = df.selectExpr("if(value = '99', raise_error('poison'), value) as value")
    with pytest.raises(Exception, match="poison"):
        broken.write.format("kafkagroup").mode("append").options(**options).save()
    wait = Wait(30)
    while Sink(kafka.bootstrap_servers, name).open():  # a task may be on its way still; it aborts its own
        assert not wait.over
    assert len(visible(kafka.bootstrap_servers, name, 100)) == 100
    with pytest.raises(Exception, match=r"transactional\.id\.prefix is missing"):
        del options["transactional.id.prefix"]
        df.write.format("kafkagroup").mode("append").options(**options).save()


def test_a_stream_that_restarts_writes_every_row_once(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    register(spark)
    name = topic("eo-stream")
    (tmp_path / "in").mkdir()

    def run() -> None:
        lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "in"))
        transactional = {"transactional": "true", "transactional.id.prefix": name}
        run_to_end(to_topic(lines, kafka, name, tmp_path / "checkpoint", **transactional))

    for number in range(2):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb{number}\n", encoding="utf-8")
    run()
    # As if the driver had died after the sink's commit and before Spark's own.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    for crc in (tmp_path / "checkpoint" / "commits").glob(".1.crc"):
        crc.unlink()
    (tmp_path / "in" / "2.txt").write_text("a2\nb2\n", encoding="utf-8")
    run()
    assert visible(kafka.bootstrap_servers, name, 6) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
