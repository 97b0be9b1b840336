"""`arrow.consume`: members of a group that share topics, commit what was handed out, and leave at once."""

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import ListedOffset
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import (
    AbortableError,
    DataLossError,
    FencedError,
    InvalidConfigurationError,
    OptionError,
    RetriableError,
    UnknownGroupError,
    UnknownOutcomeError,
)
from kafka_source.fetch.engine import FetchRequest
from kafka_source.group.requests import leave_group
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.kafka_client.messages.group import OffsetCommitRequest
from kafka_source.transactions.offset_transaction import commit_in
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.integration.arrow.test_read import HALVES, halves, write
from tests.support.records import Topic, add_partitions, create_again
from tests.support.waiting import wait_until

PARTITIONS = 4
SECONDS = 60
ENGINE = "kafkagroup.arrow.consuming.engine_for"


@pytest.fixture
def out(topic: Topic) -> str:
    """A topic that transactions write to."""
    return topic("arrow-consume-out", partitions=PARTITIONS)


@dataclass
class Orders:
    """A fresh topic and the group that reads it, which have one name.

    Attributes:
        settings: The settings of a member.
    """

    kafka: EmbeddedKafka
    groups: Groups
    name: str
    settings: dict[str, str]

    def write(self, numbers: range) -> None:
        """Write numbers, round robin over the partitions."""
        write(self.kafka, self.name, numbers, partitions=PARTITIONS)

    def consume(self, more: dict[str, str | int] | None = None, **options: Any) -> arrow.GroupStream:
        """A member with more settings; the options are arguments of `arrow.consume`."""
        return arrow.consume(self.name, {**self.settings, **(more or {})}, **options)

    def committed(self) -> int:
        """The sum of the group's offsets, which is the number of records before them."""
        return sum(self.groups.committed(self.name).values())

    def members(self) -> int:
        return len(self.shares())

    def shares(self) -> list[int]:
        try:
            return [len(one.partitions) for one in self.groups.describe(self.name).members]
        except UnknownGroupError:
            return []

    def remove_members(self) -> None:
        client = cached_client(Settings({"bootstrap.servers": self.kafka.bootstrap_servers}))
        found = [(one.member_id, one.instance_id) for one in self.groups.describe(self.name).members]
        client.run(leave_group(client, self.name, found, "a test", Deadline(SECONDS)))


@pytest.fixture
def orders(kafka: EmbeddedKafka, topic: Topic, groups: Groups) -> Orders:
    name = topic("arrow-consume", partitions=PARTITIONS)
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": name,
        "heartbeat.interval.ms": "200",
        "session.timeout.ms": "10000",
    }
    return Orders(kafka, groups, name, settings)


def numbers(stream: arrow.Stream) -> list[int]:
    return [int(value) for batch in stream for value in batch["value"].to_pylist()]


class Loop:
    """A member in a thread, which commits each batch."""

    def __init__(self, topic: str, settings: dict[str, str]) -> None:
        self.seen: list[int] = []
        self.partitions: set[int] = set()
        self._topic, self._settings = topic, settings
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with arrow.consume(self._topic, self._settings, max_wait=0.1) as stream:
            while not self._ends.is_set():
                for batch in stream:
                    self.seen += map(int, batch["value"].to_pylist())
                    self.partitions |= set(batch["partition"].to_pylist())
                    stream.commit()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def loops(orders: Orders, opened: ExitStack) -> Callable[[], Loop]:
    def make() -> Loop:
        return opened.enter_context(closing(Loop(orders.name, orders.settings)))

    return make


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_group_goes_on_where_it_has_committed(orders: Orders, engine: str, caplog: pytest.LogCaptureFixture) -> None:
    orders.write(range(40))
    with orders.consume(columns="value string", max_wait=0, engine=engine) as stream:
        assert sorted(numbers(stream)) == list(range(40))
        assert orders.committed() == 0
        stream.commit()
        assert orders.committed() == 40
        orders.write(range(40, 80))
        assert sorted(numbers(stream)) == list(range(40, 80)), "the next iteration goes on"
        assert stream.schema.names == ["value"]
        assert stream.progress.records == 80 and stream.progress.lag == 0
    assert orders.committed() == 40, "what nobody asked to commit is not committed"
    with orders.consume(columns="value string", max_wait=0, engine=engine) as stream:
        assert sorted(numbers(stream)) == list(range(40, 80))
    assert [one.message for one in caplog.records if one.name.startswith("kafka")] == [], "no warning for what is meant"


def test_a_commit_is_of_what_was_handed_out(orders: Orders) -> None:
    orders.write(range(4000))
    with orders.consume(max_bytes=16_000) as stream:
        batches = iter(stream)
        first = next(batches).num_rows + next(batches).num_rows
        stream.commit()
        assert 0 < first == orders.committed() < 4000
        for batch in batches:
            first += batch.num_rows
            if first == 4000:
                break
        stream.commit()
    assert orders.committed() == 4000


def test_a_batch_that_the_loop_did_not_get_is_not_committed(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.write(range(4000))
    received = 0

    def interrupt(*_: object) -> None:
        if received:
            raise KeyboardInterrupt

    with orders.consume(max_bytes=16_000, max_wait=0) as stream:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("kafkagroup.arrow.progress.Bar.update", interrupt)
            for batch in stream:
                received += batch.num_rows
        stream.commit()
        assert 0 < received == orders.committed() < 4000
        assert received + sum(batch.num_rows for batch in stream) == 4000


def test_members_share_the_partitions_and_take_over(orders: Orders, loops: Callable[[], Loop]) -> None:
    first, second = loops(), loops()
    wait_until(lambda: orders.shares() == [2, 2], "equal shares", SECONDS)
    orders.write(range(400))
    wait_until(lambda: len(first.seen) + len(second.seen) >= 400, "the records", SECONDS)
    assert sorted(first.seen + second.seen) == list(range(400))
    assert (len(first.partitions), len(second.partitions)) == (2, 2)
    second.close()
    orders.write(range(400, 800))
    wait_until(lambda: len(first.seen) >= 600, "the other's partitions", SECONDS)
    assert sorted(first.seen + second.seen) == list(range(800))
    # The loop commits what it has seen.
    wait_until(lambda: orders.committed() == 800, "the commit of the last batch", SECONDS)


def test_an_error_in_the_loop_leaves_at_once_and_commits_nothing(orders: Orders) -> None:
    orders.write(range(40))
    with pytest.raises(ZeroDivisionError), orders.consume() as stream:
        for _ in stream:
            assert orders.members() == 1
            raise ZeroDivisionError
    assert orders.members() == 0
    assert orders.committed() == 0
    with pytest.raises(ValueError, match="closed"):
        stream.commit()


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from kafkagroup import arrow
with arrow.consume(sys.argv[1], {"bootstrap.servers": sys.argv[2], "group.id": sys.argv[1]}) as stream:
    for batch in stream:
        print(batch.num_rows, flush=True)
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "broken pipe"])
def test_a_program_that_ends_leaves_at_once_and_commits_nothing(orders: Orders, how: str) -> None:
    orders.write(range(40))
    command = [sys.executable, "-c", PROGRAM, orders.name, orders.kafka.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert int(running.stdout.readline()) > 0
        assert orders.members() == 1
        if how == "Ctrl-C":
            _interrupt(running)
        else:
            running.stdout.close()
            orders.write(range(4))
        try:
            running.wait(SECONDS)
        finally:
            running.kill()
        error = running.stderr.read()
    assert ("KeyboardInterrupt" if how == "Ctrl-C" else "BrokenPipeError") in error
    assert orders.members() == 0
    assert orders.committed() == 0


_OPENS = """
import os, sys, threading
from kafkagroup import arrow
topic, servers = sys.argv[1:]
stream = arrow.consume(topic, {"bootstrap.servers": servers, "group.id": topic, "session.timeout.ms": 6000})

def rows():
    with stream:
        for batch in stream:
            print(batch.num_rows, flush=True)
            input()
            yield batch
"""
_ENDS = {
    "SystemExit": ("for _ in rows():\n    sys.exit(3)", 3),
    "an error, with a generator that is held": ("held = rows()\nnext(held)\nraise ValueError", 1),
    "no close": ("held = iter(stream)\nprint(next(held).num_rows, flush=True)\ninput()", 0),
    "a thread that reads": (
        "held = rows()\nnext(held)\nthreading.Thread(target=list, args=(held,), daemon=True).start()",
        0,
    ),
    "os._exit": ("for _ in rows():\n    os._exit(4)", 4),
    "a forked child that ends": (
        "for _ in rows():\n    if not os.fork():\n        sys.exit()\n    os.wait()\n    stream.commit()\n    break",
        0,
    ),
}


@pytest.mark.parametrize("how", _ENDS)
def test_a_program_that_ends_without_a_close_leaves_or_is_removed_when_its_session_ends(
    orders: Orders, how: str
) -> None:
    orders.write(range(40))
    code, exit_code = _ENDS[how]
    command = [sys.executable, "-c", _OPENS + code, orders.name, orders.kafka.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdin is not None
        read = int(running.stdout.readline())
        assert orders.members() == 1
        print(file=running.stdin, flush=True)
        try:
            assert running.wait(SECONDS) == exit_code
        finally:
            running.kill()
    if how == "os._exit":
        assert orders.members() == 1
        wait_until(lambda: orders.members() == 0, "the end of its session", SECONDS)
    assert orders.members() == 0
    # The child has neither left the group of its parent nor taken its connections.
    assert orders.committed() == (read if "forked" in how else 0)


def _interrupt(running: subprocess.Popen[str]) -> None:
    """Press Ctrl-C, and once more where Python has lost it: it ignores errors in callbacks of weak references.

    About one of 300 comes in such a callback of asyncio.
    """
    running.send_signal(signal.SIGINT)
    try:
        running.wait(10)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)


def test_a_member_in_a_thread_reads_added_partitions_after_the_main_thread_has_ended(orders: Orders) -> None:
    program = """
import sys, threading
from kafkagroup import arrow

def read(topic, servers):
    threading.main_thread().join()
    settings = {"bootstrap.servers": servers, "group.id": topic, "metadata.max.age.ms": "500"}
    with arrow.consume(topic, settings, columns="value string", max_wait=30) as stream:
        left = 7
        for batch in stream:
            print(*batch["value"].to_pylist(), sep="\\n", flush=True)
            left -= batch.num_rows
            if not left:
                break

threading.Thread(target=read, args=sys.argv[1:]).start()
"""
    write(orders.kafka, orders.name, range(1), partitions=1)
    command = [sys.executable, "-c", program, orders.name, orders.kafka.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        add_partitions(orders.kafka, orders.name, PARTITIONS + 1)
        write(orders.kafka, orders.name, range(4, 10), partitions=PARTITIONS + 1)
        out, err = process.communicate(timeout=SECONDS)
    assert sorted(out.split()) == ["4", "5", "6", "7", "8", "9"]
    assert (err, process.returncode) == ("", 0)


def test_a_member_that_was_removed_is_told_by_its_commit_and_reads_again(orders: Orders) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        assert len(numbers(stream)) == 40
        stream.commit()
        orders.write(range(40, 80))
        assert sorted(numbers(stream)) == list(range(40, 80))
        orders.remove_members()
        with pytest.raises(FencedError, match=orders.name):
            stream.commit()
        assert orders.committed() == 40
        assert sorted(numbers(stream)) == list(range(40, 80)), "what is not committed is handed out again"
        stream.commit()
    assert orders.committed() == 80


def test_a_caller_that_takes_too_long_loses_its_partitions(orders: Orders, loops: Callable[[], Loop]) -> None:
    orders.write(range(40))
    with orders.consume({"max.poll.interval.ms": 1500}) as stream:
        handed = next(iter(stream)).num_rows
        assert handed > 0
        other = loops()
        wait_until(lambda: len(other.seen) >= 40, "another member, which reads all", SECONDS)
        assert sorted(other.seen) == list(range(40)), "nothing was committed"
        with pytest.raises(FencedError, match=r"max\.poll\.interval\.ms"):
            stream.commit()


def test_a_member_that_was_too_slow_goes_on_where_others_have_committed(
    orders: Orders, loops: Callable[[], Loop]
) -> None:
    orders.write(range(40))
    with orders.consume({"max.poll.interval.ms": 1500}, max_wait=0) as slow:
        assert len(numbers(slow)) == 40
        slow.commit()
        loops()
        orders.write(range(40, 80))
        wait_until(lambda: orders.committed() == 80, "another member, which reads what comes", SECONDS)
        for _ in range(3):
            assert numbers(slow) == []
            slow.commit()
        assert (orders.committed(), orders.shares()) == (80, [2, 2])


def fail_until(done: Callable[[], bool], stream: arrow.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for records, without an answer of the partitions' leaders, until a rebalance has come to its end."""
    find, here = Cluster.latest_with_epochs, threading.current_thread()

    def fail(
        cluster: Cluster, partitions: Iterable[TopicPartition], **named: Any
    ) -> dict[TopicPartition, ListedOffset]:
        if threading.current_thread() is here:
            raise RetriableError("a test")
        return find(cluster, partitions, **named)

    def fails_at_the_end() -> bool:
        with pytest.raises(RetriableError, match="a test"):
            next(iter(stream))
        return done()

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "latest_with_epochs", fail)
        wait_until(fails_at_the_end, "a rebalance", SECONDS)


def test_a_commit_after_failed_looks_for_records_does_not_undo_what_other_members_have_committed(
    orders: Orders, loops: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        assert len(numbers(stream)) == 40
        other = loops()
        fail_until(lambda: orders.shares() == [2, 2], stream, monkeypatch)
        orders.write(range(40, 80))
        wait_until(lambda: orders.committed() == 40, "the other's commit of all in two partitions", SECONDS)
        other.close()
        fail_until(lambda: orders.shares() == [4], stream, monkeypatch)
        stream.commit()
        assert orders.committed() == 60, "20 of the other two partitions were handed out before"
        assert len(numbers(stream)) == 20
        stream.commit()
    assert orders.committed() == 80


@pytest.mark.requires_native
def test_a_transaction_after_a_failed_look_for_records_writes_nothing_that_other_members_got(
    orders: Orders, loops: Callable[[], Loop], out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        batches = list(stream)
        other = loops()
        fail_until(lambda: orders.shares() == [2, 2], stream, monkeypatch)
        wait_until(lambda: orders.committed() == 20, "the other's commit", SECONDS)
        with pytest.raises(FencedError, match="has rebalanced"), stream.transaction() as transaction:
            for batch in batches:
                transaction.write(out, batch)
        assert values(out, orders.settings) == []
        for batch in stream:
            with stream.transaction() as transaction:
                transaction.write(out, batch)
        assert sorted([*values(out, orders.settings), *other.seen]) == list(range(40))
    assert orders.committed() == 40


def test_records_of_an_added_partition_are_handed_out_again_if_nobody_has_committed_them(orders: Orders) -> None:
    seen: list[int] = []
    with orders.consume({"metadata.max.age.ms": "200"}, start="latest", max_wait=0.1) as stream:
        assert numbers(stream) == []
        add_partitions(orders.kafka, orders.name, PARTITIONS + 1)
        write(orders.kafka, orders.name, [PARTITIONS], partitions=PARTITIONS + 1)
        wait_until(lambda: seen.extend(numbers(stream)) or seen == [PARTITIONS], "the record", SECONDS)
    with orders.consume(start="latest", max_wait=0) as stream:
        assert numbers(stream) == [PARTITIONS]


def test_a_read_that_finds_its_topic_created_again_commits_no_end_of_its_plan(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine:
        """Finds out in the middle of its read, and leaves the old topic's records out."""

        def read(self, _: FetchRequest) -> Iterator[pa.RecordBatch]:
            orders.kafka.delete_topic(orders.name)
            create_again(orders.kafka, orders.name, partitions=PARTITIONS)
            return iter(())

    # As brokers before 4.1 take it: by the topic's name.
    monkeypatch.setattr(OffsetCommitRequest, "max_version", 9)
    orders.write(range(40))
    with orders.consume(max_wait=0, fail_on_data_loss=False) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(ENGINE, lambda *_: Engine())
            assert numbers(stream) == []
        orders.write(range(8))
    with orders.consume(max_wait=0) as stream:
        assert sorted(numbers(stream)) == list(range(8))


@pytest.mark.requires_native
def test_a_transaction_does_not_commit_for_a_topic_that_was_created_again(orders: Orders, out: str) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        with pytest.raises(DataLossError, match="created again"), stream.transaction() as transaction:
            for batch in stream:
                transaction.write(out, batch)
            orders.kafka.delete_topic(orders.name)
            create_again(orders.kafka, orders.name, partitions=PARTITIONS)
        assert (values(out, orders.settings), orders.committed()) == ([], 0)


@pytest.mark.requires_native
def test_a_member_that_has_committed_everything_has_no_lag(orders: Orders) -> None:
    producer = {"bootstrap.servers": orders.kafka.bootstrap_servers, "transactional.id": f"{orders.name}-writer"}
    arrow.write(orders.name, pl.DataFrame({"value": [str(number) for number in range(40)]}), producer)
    with orders.consume({"isolation.level": "read_committed"}, max_wait=0) as stream:
        for _ in stream:
            stream.commit()
    assert orders.committed() > 40, "the offsets of the records and of the markers"
    assert sum(row.lag or 0 for row in orders.groups.lag(orders.name)) == 0


def values(topic: str, settings: dict[str, str]) -> list[int]:
    with arrow.read(topic, {**settings, "isolation.level": "read_committed"}) as stream:
        return sorted(numbers(stream))


@pytest.mark.requires_native
def test_a_transaction_commits_records_and_offsets_or_neither(orders: Orders, out: str) -> None:
    orders.write(range(40))
    with orders.consume({"compression.type": "lz4"}, max_wait=0) as stream:
        with pytest.raises(ZeroDivisionError), stream.transaction() as transaction:
            for batch in stream:
                assert transaction.write(out, batch) == batch.num_rows
            raise ZeroDivisionError
        assert (values(out, orders.settings), orders.committed()) == ([], 0)
        seen = 0
        for batch in stream:
            with stream.transaction() as transaction:
                transaction.write(out, batch)
            seen += batch.num_rows
            assert orders.committed() == seen
        assert seen == 40, "what was not committed is handed out again"
        with stream.transaction():
            pass
        orders.write(range(40, 80))
        batch = next(iter(stream))
        with stream.transaction():
            pass  # Its records are dropped on purpose.
        assert orders.committed() == 40 + batch.num_rows
    assert values(out, orders.settings) == list(range(40))


@pytest.mark.requires_native
def test_a_transaction_of_a_member_that_was_removed_leaves_nothing(orders: Orders, out: str) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        batches = list(stream)
        with pytest.raises(FencedError, match=orders.name), stream.transaction() as transaction:
            for batch in batches:
                transaction.write(out, batch)
            orders.remove_members()
        assert (values(out, orders.settings), orders.committed()) == ([], 0)
        with stream.transaction() as transaction:
            for batch in stream:
                transaction.write(out, batch)
    assert (values(out, orders.settings), orders.committed()) == (list(range(40)), 40)


@pytest.mark.requires_native
def test_a_transaction_leaves_nothing_after_an_error_of_a_write_that_its_block_catches(
    orders: Orders, out: str
) -> None:
    orders.write(range(40))
    with orders.consume({"max.request.size": 1000}, max_wait=0) as stream:
        batches = list(stream)
        with pytest.raises(AbortableError, match="Repeat the block") as problem, stream.transaction() as transaction:
            with pytest.raises(InvalidConfigurationError, match="2070 bytes"):
                transaction.write(out, pa.table({"value": ["1", "x" * 2000, "3"]}))
            transaction.write(out, pa.table({"value": ["4"]}))
        assert "2070 bytes" in str(problem.value) and isinstance(problem.value.__cause__, InvalidConfigurationError)
        assert (values(out, orders.settings), orders.committed()) == ([], 0)
        with stream.transaction() as transaction:
            for batch in batches:
                transaction.write(out, batch)
    assert (values(out, orders.settings), orders.committed()) == (list(range(40)), 40)


@pytest.mark.requires_native
@pytest.mark.parametrize("error", [DataLossError, KeyboardInterrupt])
def test_an_error_of_a_stream_that_is_written_is_the_caller_s(
    orders: Orders, out: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    class Engine:
        """Is interrupted."""

        def read(self, _: FetchRequest) -> Iterator[pa.RecordBatch]:
            raise KeyboardInterrupt

    orders.write(range(40))
    start = dict.fromkeys(range(PARTITIONS), 0)
    if error is DataLossError:
        start[1] = 99
    else:
        monkeypatch.setattr(ENGINE, lambda *_: Engine())
    with orders.consume(start=start, max_wait=0) as stream:
        with pytest.raises(error):
            arrow.write(out, stream, {"bootstrap.servers": orders.kafka.bootstrap_servers})
        with pytest.raises(error), stream.transaction() as transaction:
            transaction.write(out, stream)


@pytest.mark.requires_native
def test_a_transaction_that_is_repeated_writes_its_records_once(
    orders: Orders, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        for batch in stream:
            with pytest.raises(TimeoutError), stream.transaction() as transaction:
                transaction.write(out, batch)
                raise TimeoutError
            with stream.transaction() as transaction:
                transaction.write(out, batch)
        assert (values(out, orders.settings), orders.committed()) == (list(range(40)), 40)

        orders.write(range(40, 80))
        batches = list(stream)
        with pytest.raises(TimeoutError), stream.transaction():
            raise TimeoutError
        with pytest.raises(FencedError, match="returned again"), stream.transaction() as transaction:
            for batch in itertools.chain(batches, stream):
                transaction.write(out, batch)
        assert (values(out, orders.settings), orders.committed()) == (list(range(40)), 40)

        async def lose_the_answer(*arguments: Any, **named: Any) -> None:
            await commit_in(*arguments, **named)
            raise UnknownOutcomeError("a test")

        batches = list(stream)
        with monkeypatch.context() as patch, pytest.raises(UnknownOutcomeError), stream.transaction() as transaction:
            patch.setattr("kafkagroup.arrow.writing.commit_in", lose_the_answer)
            for batch in batches:
                transaction.write(out, batch)
        with pytest.raises(FencedError, match="has committed later offsets"), stream.transaction() as transaction:
            for batch in batches:
                transaction.write(out, batch)
        assert list(stream) == []
    assert (values(out, orders.settings), orders.committed()) == (list(range(80)), 80)


@pytest.mark.requires_native
@pytest.mark.parametrize("fails", ["kafka_source.cluster.lookup.Cluster.latest_with_epochs", ENGINE])
def test_a_transaction_that_is_repeated_after_an_error_of_going_on_is_refused(
    orders: Orders, out: str, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RetriableError("a test")

    orders.write(range(40))
    with orders.consume(max_wait=0) as stream:
        batches = list(stream)
        with pytest.raises(TimeoutError), stream.transaction():
            raise TimeoutError
        for _ in range(2):
            with monkeypatch.context() as patch, pytest.raises(RetriableError, match="a test"):
                patch.setattr(fails, fail)
                next(iter(stream))
            with pytest.raises(FencedError, match="returned again"), stream.transaction() as transaction:
                for batch in batches:
                    transaction.write(out, batch)
        assert (values(out, orders.settings), orders.committed()) == ([], 0)
        for batch in stream:
            with stream.transaction() as transaction:
                transaction.write(out, batch)
    assert (values(out, orders.settings), orders.committed()) == (list(range(40)), 40)


def test_wrong_arguments_are_said(orders: Orders) -> None:
    without = {key: value for key, value in orders.settings.items() if key != "group.id"}
    with pytest.raises(OptionError, match=r"^Option group\.id"):
        arrow.consume(orders.name, without)
    with pytest.raises(OptionError, match=r"^Option start"):
        orders.consume(start="@5")
    with pytest.raises(OptionError, match="without the prefix"):
        orders.consume({"kafka.client.id": "x"})
    with pytest.raises(OptionError, match="use start"):
        orders.consume({"auto.offset.reset": "latest"})
    with pytest.raises(OptionError, match=r"^Option group\.protocol.*classic"):
        arrow.consume(
            orders.name,
            {"bootstrap.servers": orders.settings["bootstrap.servers"], "group.id": "g", "group.protocol": "consumer"},
        )


def test_errors_of_a_look_for_records_name_arguments_as_the_caller_writes_them(orders: Orders) -> None:
    orders.write(range(40))
    with orders.consume(start={0: 0}) as stream, pytest.raises(OptionError, match=r"^Option start got"):
        next(iter(stream))
    start = {0: 99, 1: 0, 2: 0, 3: 0}
    with orders.consume(start=start) as stream:
        with pytest.raises(DataLossError, match="give fail_on_data_loss=False") as lost:
            next(iter(stream))
    assert lost.value.planned == 99 and "failOnDataLoss" not in str(lost.value)
    with pytest.raises(OptionError, match=r"^Option fetch\.max\.bytes got 'abc'; it takes a whole number"):
        orders.consume({"fetch.max.bytes": "abc"})


def test_what_came_after_the_start_and_was_not_committed_is_read_by_the_next_owner(orders: Orders) -> None:
    orders.write(range(20))
    with orders.consume(start="latest", max_wait=0.2) as first:
        assert numbers(first) == []
        orders.write(range(20, 60))
        assert sorted(numbers(first)) == list(range(20, 60))
    with orders.consume(start="latest", max_wait=0.2) as second:
        assert sorted(numbers(second)) == list(range(20, 60))


def test_a_function_makes_the_rows_that_are_committed(orders: Orders) -> None:
    orders.write(range(200))

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError(next(batches).num_rows)

    with orders.consume(max_wait=5, function=failing, schema=HALVES) as stream:
        with pytest.raises(InvalidConfigurationError, match="has failed with ValueError; its last batch had"):
            list(stream)
        stream.commit()
    assert orders.committed() == 0
    found: list[int] = []
    with orders.consume(max_wait=3, columns="value string", function=halves, schema=HALVES) as stream:
        for batch in stream:
            found += batch["half"].to_pylist()
            stream.commit()
    assert sorted(found) == [number // 2 for number in range(20)]
    assert orders.committed() == 200
