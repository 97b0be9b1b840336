"""`kafkagroup transactions`: what exactly-once sinks have left open, on a real broker."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from jsonschema import Draft202012Validator
from kafka.record.default_records import DefaultRecordBatchBuilder
from typer.testing import CliRunner

from docs.json_documents import DOCUMENTS
from kafka_source.kafka_client import Deadline, cached_client
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka
from tests.support.record_messages import ProduceRequest
from tests.support.records import Topic, open_transaction
from tests.support.two_phase import SIGKILL, TASKS, Sink, in_a_process, rows, take_over, visible, whole


def command(kafka: EmbeddedKafka, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["transactions", *arguments, "-b", kafka.bootstrap_servers])
    assert result.exit_code == 0, result.output
    return result.output


def test_nothing_is_open(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-none")
    Sink(kafka.bootstrap_servers, name).run(0)
    for what in ("list", "commit", "abort"):
        assert command(kafka, what, "--prefix", name) == f"The sink {name} has no transactions to finish.\n"


def test_what_was_decided_is_committed_and_not_aborted(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-decided")
    assert in_a_process("sink-decided", kafka.bootstrap_servers, name, batches=(3,)) == SIGKILL
    shown = command(kafka, "list", "--prefix", name)
    assert "decided, to be committed: batch 3 of q" in shown
    assert all(f"{name}-{n}-0" in shown for n in range(TASKS))
    document = json.loads(command(kafka, "list", "--prefix", name, "-o", "json"))
    Draft202012Validator(DOCUMENTS["transactions list"].schema()).validate(document)
    assert {(row["state"], row["batch"]) for row in document} == {("decided", 3)}
    assert command(kafka, "abort", "--prefix", name, "--yes").count(f"{name}-") == TASKS
    assert "add --yes" in command(kafka, "commit", "--prefix", name)
    assert visible(kafka.bootstrap_servers, name) == []
    assert f"Committed {TASKS} transactions of batch 3." in command(kafka, "commit", "--prefix", name, "--yes")
    assert visible(kafka.bootstrap_servers, name, 60) == whole(3)
    assert command(kafka, "list", "--prefix", name) == f"The sink {name} has no transactions to finish.\n"


def test_what_nobody_decided_on_is_aborted_and_not_committed(kafka: EmbeddedKafka, topic: Topic) -> None:
    name, another = topic("cli-undecided"), topic("cli-another")
    sink, others = (
        Sink(kafka.bootstrap_servers, name),
        [Sink(kafka.bootstrap_servers, another), Sink(kafka.bootstrap_servers, name, prefix=f"{name}-7")],
    )
    for one in (sink, *others):
        one.task(one.begin(), 0, 0)
    assert f"{name}-0" in command(kafka, "list", "--prefix", name)
    assert command(kafka, "commit", "--prefix", name, "--yes") == f"The sink {name} has no transactions to finish.\n"
    assert "add --yes" in command(kafka, "abort", "--prefix", name)
    assert len(sink.open()) == 1
    assert "Aborted 1 transactions." in command(kafka, "abort", "--prefix", name, "--yes")
    assert sink.open() == []
    assert [len(one.open()) for one in others] == [1, 1]
    assert visible(kafka.bootstrap_servers, name) == []


@contextmanager
def undecided(kafka: EmbeddedKafka, name: str) -> Iterator[Producer]:
    """A task's open transaction that no decision names."""
    yield open_transaction(kafka.bootstrap_servers, f"{name}-9-0", name, [b"undecided"])


@pytest.mark.parametrize("lost", [False, True])
def test_commit_shows_the_undecided_transactions_that_it_aborts(kafka: EmbeddedKafka, topic: Topic, lost: bool) -> None:
    name = topic("cli-both")
    assert in_a_process("sink-decided", kafka.bootstrap_servers, name, batches=(3,)) == SIGKILL
    with undecided(kafka, name):
        if lost:
            take_over(kafka.bootstrap_servers, f"{name}-1-0")
        shown = command(kafka, "commit", "--prefix", name)
        assert all(f"{name}-{task}-0" in shown for task in (*range(TASKS), 9))
        assert "The 1 undecided transactions are aborted" in shown
        done = command(kafka, "commit", "--prefix", name, "--yes", *(["--accept-loss"] if lost else []))
        assert f"Committed {TASKS - lost} transactions of batch 3" in done
        assert command(kafka, "list", "--prefix", name) == f"The sink {name} has no transactions to finish.\n"
    assert b"undecided" not in visible(kafka.bootstrap_servers, name, 40)


def test_abort_counts_what_it_has_aborted(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-race")
    first, second = (Sink(kafka.bootstrap_servers, name) for _ in range(2))
    replaced = first.begin()
    epoch = second.begin()
    second.task(epoch, 0, 0)
    assert first.abort(replaced) == [], "another driver has begun a batch since"
    assert [one.transactional_id for one in second.abort(epoch)] == [f"{name}-0-0"]
    assert second.abort(epoch) == []


def test_a_loss_is_accepted_only_in_so_many_words(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-lost")
    assert in_a_process("sink-decided", kafka.bootstrap_servers, name, batches=(0,)) == SIGKILL
    take_over(kafka.bootstrap_servers, f"{name}-1-0")
    arguments = ["transactions", "commit", "--prefix", name, "--yes", "-b", kafka.bootstrap_servers]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    assert f"{name}-1-0" in refused.output
    assert "Committed 2 transactions of batch 0; 1 were lost." in command(kafka, *arguments[1:-2], "--accept-loss")
    Sink(kafka.bootstrap_servers, name).run(0, 1)
    assert visible(kafka.bootstrap_servers, name, 100) == sorted(rows(0, 0) + rows(0, 2) + whole(1))


@pytest.fixture
def unverified(kafka: EmbeddedKafka) -> Iterator[None]:
    """The brokers take records of transactions that their coordinator does not know of, as all did before Kafka 3.6."""

    admin = kafka.admin()

    def set_verification(value: str) -> None:
        entry = ConfigEntry(
            "transaction.partition.verification.enable", value, incremental_operation=AlterConfigOpType.SET
        )
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([broker]).values():
            done.result(30)

    set_verification("false")
    yield
    set_verification("true")


def test_a_commit_marker_that_a_broker_has_lost_is_written(
    kafka: EmbeddedKafka, topic: Topic, unverified: None
) -> None:
    """The partition holds records of a transaction of the second protocol, which its coordinator has committed."""
    name, other = topic("cli-lost"), topic("cli-lost-marker", partitions=1)
    assert in_a_process("sink-committed", kafka.bootstrap_servers, name, batches=(3,)) == SIGKILL
    sink = Sink(kafka.bootstrap_servers, name)
    lost = min(sink.decided(), key=lambda one: one.transactional_id)
    assert lost.second_protocol
    builder = DefaultRecordBatchBuilder(2, 0, True, lost.producer_id, lost.epoch, 0, 1 << 20)
    builder.append(0, 0, None, b"behind it", [])
    of_topic = ProduceRequest.TopicProduceData
    records = of_topic.PartitionProduceData(0, bytes(builder.build()))
    request = ProduceRequest(lost.transactional_id, -1, 10_000, [of_topic(other, partition_data=[records])])
    client = cached_client(sink.settings)
    # From version 12 on a request adds its partition to the transaction, which has ended.
    answer = client.run(client.send(1, request, Deadline(30), 11))
    assert [one.error_code for of in answer.responses for one in of.partition_responses] == [0]
    assert visible(kafka.bootstrap_servers, other) == []

    repair = ("repair", "--prefix", name, "--topic", other, "--topic", name)
    shown = command(kafka, *repair)
    assert lost.transactional_id in shown
    assert "add --yes" in shown
    assert visible(kafka.bootstrap_servers, other) == []
    assert "Wrote 1 commit markers." in command(kafka, *repair, "--yes")
    assert visible(kafka.bootstrap_servers, other, 1) == [b"behind it"]
    assert command(kafka, *repair) == f"No commit marker of {name} is missing.\n"
    sink.run(4)
    assert visible(kafka.bootstrap_servers, name, 120) == whole(3, 4)


def test_brokers_that_are_not_there_are_told() -> None:
    arguments = ["transactions", "list", "--prefix", "p", "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
