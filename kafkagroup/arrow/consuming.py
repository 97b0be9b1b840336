"""`arrow.consume`: read as a member of a group, and commit; after a failure, batches are returned again."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TypeAlias

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.arrow_function import PLACE, ArrowFunction
from kafka_source.arrow_function import Mapping as FunctionMapping
from kafka_source.boundary import short
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.choose import Caller, policy_of
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError, OptionError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.group.model import subscription_of
from kafka_source.kafka_client import cached_client
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.identity import ids_of_ranges
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.record_columns import Column
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.source.plan import plan
from kafka_source.source.start_and_end import commit_existing, without_lost_topics
from kafka_source.source.trigger import Trigger
from kafka_source.transactions.offset_committer import transactional_id_of
from kafka_source.transactions.offset_transaction import GroupOffsets
from kafkagroup.arrow.progress import Bar, Progress
from kafkagroup.arrow.reading import DEFAULT_MAX_BYTES, memory_options
from kafkagroup.arrow.settings import (
    DEFAULT_COLUMNS,
    Columns,
    Position,
    SettingValue,
    Topics,
    columns_named,
    mapping_of,
    offset_everywhere,
    position_options,
    settings_of,
    topics_of,
    with_place,
    without_prefix,
)
from kafkagroup.arrow.stream import Stream
from kafkagroup.arrow.writing import Transaction, transactional_options

log = logging.getLogger(__name__)

_Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"

# Seconds between two lookups of new records. The time grows while there are no new records.
_PAUSES = RetryPolicy(0.02, 0.5)
# Java's default. If this process dies, the next owner of its partitions waits until the transaction is aborted.
_TRANSACTIONS = {"transaction.timeout.ms": 60_000}


@short
def consume(
    topics: Topics,
    settings: Mapping[str, SettingValue],
    *,
    start: Position = "earliest",
    columns: Columns = DEFAULT_COLUMNS,
    function: ArrowFunction | None = None,
    schema: pa.Schema | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_wait: float | None = None,
    fail_on_data_loss: bool = True,
    engine: str = "auto",
    bar: bool | None = None,
) -> GroupStream:
    """Read topics as a member of a group, from the group's committed offsets on.

    The member joins when you begin to iterate. Use the stream in a `with` block. At the end of the block the member
    leaves the group, so that other members get its partitions immediately. Use the stream from one thread at a time.
    Run each member in its own thread, because a rebalance waits until every member requests its next batch. If
    `kafkagroup stop` has stopped the group, the iteration ends: commit your last batches, and close the stream.

    Args:
        topics: A topic, several topics, or a pattern made by `re.compile`.
        settings: Settings of Kafka's consumers: `bootstrap.servers`, `group.id`, and others such as
            `partition.assignment.strategy`, `session.timeout.ms` and `isolation.level`.
        start: The start of partitions without a committed offset: `earliest`, `latest`, a time, `-1h`, or offsets.
        columns: As in `read`.
        function: As in `read`. The function is called for each batch of records, and its rows become one batch.
            `commit` and `transaction` apply to the records of the returned rows.
        schema: As in `read`.
        max_bytes: The approximate memory of the stream.
        max_wait: Seconds without a new record after which the iteration ends; None: never. The member stays in the
            group, and the next iteration continues.
        fail_on_data_loss: Whether to raise an error if retention deletes records before they are read; if false, skip
            these records.
        engine: As in `read`.
        bar: As in `read`.

    Raises:
        OptionError: A setting or an argument is wrong.
        KafkaGroupError: The brokers do not answer, or refuse.
    """
    wanted = columns_named(columns)
    with without_prefix():
        if not str(settings.get("group.id", "")):
            raise OptionError("group.id", None, "the name of the group to join; to read without a group, use read")
        if offset_everywhere(start) is not None:
            raise OptionError("start", start, "earliest, latest, a time, a duration such as -1h, or offsets")
        given = {
            **settings_of(settings),
            **topics_of(topics),
            **memory_options(settings, max_bytes),
            **position_options("starting", start, topics),
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            "engine": engine,
            # No warning is logged: the caller of `consume` intends to share the group.
            "group.membership": "true",
            "group.members": "1",
        }
        options = read_options(given, Where.STREAM)
        if options.group_protocol == "consumer":
            # Members of the consumer protocol release partitions between two calls, even with uncommitted records.
            raise OptionError("group.protocol", "consumer", "classic; other members of the group may use consumer")
        mapping = mapping_of(function, schema, wanted, options)
        trigger = Trigger(options, policy_of(options, Caller.PROGRAM), static=False)
    return GroupStream(options, wanted, trigger, max_wait, bar, settings, mapping)


class GroupStream(Stream):
    """The records that a member of a group reads. Each batch is returned once, unless `commit` fails.

    If the caller does not request the next batch within `max.poll.interval.ms` and the group rebalances, the member
    leaves the group. The member joins again when the next batch is requested.

    Args:
        options: The options of the read.
        columns: The columns of the batches.
        trigger: Plans the member's batches, and holds the membership in the group.
        max_wait: See `consume`.
        bar: See `read`.
        settings: The caller's settings, for the producer of `transaction`.
        mapping: The function that makes rows from these columns; None: the columns are the rows.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[Column, ...],
        trigger: Trigger,
        max_wait: float | None,
        bar: bool | None,
        settings: Mapping[str, SettingValue],
        mapping: FunctionMapping | None = None,
    ) -> None:
        schema = arrow_schema(columns) if mapping is None or mapping.schema is None else mapping.schema
        super().__init__(schema, Bar(str(subscription_of(options)), bar))
        self._mapping = mapping
        self._settings = dict(settings)
        self._options, self._trigger, self._max_wait = options, trigger, max_wait
        self._cluster = Cluster.of(options, cached_client(options.settings))
        self._names = [column.name for column in columns]
        self._columns = with_place(columns)
        self._reading: _Batches | None = None
        # `_handed` has the end of the returned records in each partition of the member, `_done` the end of the
        # committed records.
        self._handed = StreamOffset()
        self._done: dict[TopicPartition, int] = {}
        self._followed_join = 0
        # A commit has failed. Unless another commit succeeds first, the next lookup begins at the first uncommitted
        # record.
        self._goes_back = False
        # Some returned records are not committed, and another member, or this caller, may get them again.
        self._is_interrupted = False
        # The stream has gone back and has returned no batch since, so a repeated block would have no offsets to commit.
        self._is_taken_back = False
        self._transaction: Transaction | None = None

    def __repr__(self) -> str:
        return f"<{subscription_of(self._options)} as a member of group {self._options.group_id}>"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of records as they arrive. The member joins the group before the first batch.

        Raises:
            FencedError: Another process has joined with the same `group.instance.id`.
            DataLossError: Records or topics were lost, and `fail_on_data_loss` is set.
            KafkaGroupError: The group refuses the member; other errors are those of `FetchEngine.read`.
        """
        self._check_open()
        if self._reading is not None:
            # The stream has one position: records of a batch that was not returned are read again.
            self._reading.close()
        else:
            # At the end of a program Python closes open objects only after it has stopped all threads.
            atexit.register(self.close)
        self._reading = self._read()
        return self._reading

    def commit(self) -> None:
        """Commit the records of all returned batches.

        Partitions that a rebalance has given to another member are left out; the new owner reads the uncommitted
        records again (at least once).

        Raises:
            FencedError: The group has removed this member, which sent no heartbeat for `session.timeout.ms` or
                requested no batch for `max.poll.interval.ms`. Nothing is committed. If you continue, the member joins
                again, and gets the uncommitted records of its new partitions.
            UnknownOutcomeError: The coordinator has not answered, and may have committed. Call `commit` again.
            DataLossError: A topic was deleted or created again, and `fail_on_data_loss` is set. Nothing is committed.
            KafkaGroupError: Any other failure; nothing is committed.
        """
        self._check_open()
        self._follow_rebalance()
        handed = self._uncommitted()
        if handed.partitions:
            try:
                with without_prefix():
                    commit_existing(self._options, self._cluster, handed, self._trigger.commit)
            except FencedError:
                self._goes_back = True
                raise
        self._committed()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commit the returned batches and the block's records together, or commit nothing (exactly once).

        After an error no record of the block is visible and no offset has moved. Either repeat the block with the same
        batches, or continue to iterate and get them again. The transactional id is made from the group and the member's
        first partition, so the partition's next owner fences an open transaction of this member. The block may take at
        most `transaction.timeout.ms` (default one minute). If this process dies in the block, the next owners of its
        partitions wait for up to `transaction.timeout.ms`. The producer has the stream's settings and needs the native
        engine. Set `isolation.level=read_committed` to read only committed records.

        Raises:
            FencedError: The group has removed this member, or has rebalanced since the first uncommitted batch was
                returned, or you continued to iterate after an error. Continue to iterate: a repeated block fails again.
            UnknownOutcomeError: The coordinator has not reported whether the transaction is committed. The group's
                offsets show the outcome. Repeating a committed block raises `FencedError`.
            DataLossError: A topic of uncommitted batches was deleted or created again, and `fail_on_data_loss` is set.
            AbortableError: A write has failed, and the block has caught its error.
            KafkaGroupError: Any error of `write`.
        """
        self._check_open()
        options = transactional_options({**_TRANSACTIONS, **self._settings}, self._options.engine)
        try:
            with Transaction(options, self._transactional_id, self._offsets) as self._transaction:
                yield self._transaction
        except BaseException:
            self._goes_back = True
            raise
        self._committed()

    def _transactional_id(self) -> str:
        owned = self._trigger.owned.slots
        if not owned:
            raise ValueError("a transaction needs returned batches, and no batch was returned")
        return transactional_id_of(self._options.group_id or "", owned)

    def _offsets(self) -> tuple[GroupOffsets, ...]:
        self._follow_rebalance()
        if self._is_interrupted or self._is_taken_back:
            raise self._refusal("the group has rebalanced, or the batches have to be returned again")
        with without_prefix():
            handed = without_lost_topics(self._options, self._cluster, self._uncommitted())
        if not handed.partitions:
            return ()
        if self._goes_back and self._committed_ahead(self._handed.partitions):
            raise self._refusal("the group has committed later offsets")
        return (self._trigger.offsets_of_member(handed),)

    def _refusal(self, why: str) -> FencedError:
        return FencedError(
            f"Since the batches of this transaction were returned, {why}, so another member of group "
            f"{self._options.group_id} may write their records. Nothing of this transaction is committed. Continue "
            "to iterate: batches of partitions that this member still has are returned again.",
            code=ErrorCode.ILLEGAL_GENERATION,
        )

    def _committed(self) -> None:
        """Record that the caller has committed the returned batches."""
        self._done |= self._uncommitted().ends
        self._goes_back = self._is_interrupted = False

    def _uncommitted(self) -> StreamOffset:
        """Return the end of the returned records, for each partition that has uncommitted returned records."""
        spans = {tp: span for tp, span in self._handed.partitions.items() if span.end != self._done.get(tp)}
        return replace(self._handed, partitions=spans)

    def close(self) -> None:
        """Leave the group now, and commit nothing. As in Java, a member with `group.instance.id` stays in the group."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        try:
            # Another thread may be reading.
            if self._reading is not None and getgeneratorstate(self._reading) != GEN_RUNNING:
                self._reading.close()
        finally:
            self._trigger.close()
            self._bar.close()

    def _read(self) -> _Batches:
        with without_prefix():
            yield from self._batches_as_they_come()

    def _batches_as_they_come(self) -> _Batches:
        pauses, quiet = _PAUSES.pauses(), self._patience()
        while True:
            planned = self._plan()
            if planned is not None:
                with closing(self._batches(planned)) as batches:
                    for batch in batches:
                        yield batch
                        if self._goes_back or self._trigger.rebalance_due():
                            break
                pauses, quiet = _PAUSES.pauses(), self._patience()
                continue
            if self._trigger.has_reached_stop(self._handed):
                return
            left = quiet.left
            if left <= 0:
                return
            time.sleep(min(next(pauses), left))

    def _patience(self) -> Deadline:
        return Deadline(float("inf") if self._max_wait is None else self._max_wait)

    def _plan(self) -> StreamOffset | None:
        """Rejoin if a rebalance is due, and return the next ranges; None if no partition has new records."""
        if self._goes_back:
            self._find_way_back()
        start = self._handed
        planned = self._trigger.next(start, limited=False)
        self._follow_rebalance()
        if planned is start:
            return None
        for tp, span in planned.partitions.items():
            if span.start != self._handed.ends.get(tp):
                # The partition is new to this member, or another member has committed the earlier records.
                self._done[tp] = span.start
        self._handed = replace(
            planned, partitions={tp: s._replace(end=s.start) for tp, s in planned.partitions.items()}
        )
        return planned if planned.ends != self._handed.ends else None

    def _follow_rebalance(self) -> None:
        """Discard revoked partitions, and skip records that other members have committed.

        `commit` calls this method too, because the trigger may have rejoined the group and failed afterwards.
        """
        owned = self._trigger.owned
        if owned.joins == self._followed_join:
            return
        waiting = self._uncommitted().partitions
        kept = {tp: span for tp, span in self._handed.partitions.items() if tp in owned.slots}
        # Look up the offsets even if all records are committed; otherwise the trigger would return to lower offsets.
        ahead = self._committed_ahead(kept)
        if gone := sorted(waiting.keys() - kept.keys()):
            log.info(
                "group=%s: other members read the uncommitted records of %s again",
                self._options.group_id,
                format_partitions(gone),
            )
        self._is_interrupted |= bool(waiting)
        self._handed = replace(self._handed, partitions=kept)
        self._done = {tp: end for tp, end in self._done.items() if tp in kept} | ahead
        self._move({tp: max(offset, kept[tp].end) for tp, offset in ahead.items()})
        self._followed_join = owned.joins

    def _find_way_back(self) -> None:
        """Return to the first uncommitted records, or to the group's offsets if these are higher."""
        self._done |= self._committed_ahead(self._handed.partitions)
        self._is_taken_back |= self._is_interrupted or bool(self._uncommitted().partitions)
        self._move(self._done)
        # Whether the open block has already written records of these batches.
        self._is_interrupted = self._transaction is not None and self._transaction.has_written
        self._goes_back = False

    def _committed_ahead(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets that a commit of unknown outcome, or another member, has set beyond `_done`."""
        committed = self._trigger.committed_after_failure(partitions) if partitions else {}
        return {tp: offset for tp, offset in committed.items() if offset > self._done.get(tp, offset)}

    def _batches(self, planned: StreamOffset) -> _Batches:
        """Yield the planned records, and advance the stream to their ends."""
        ranges = tuple(r for one in plan(planned) for r in one.ranges)
        topics = ids_of_ranges(ranges, planned.topics)
        request = FetchRequest.of(self._options, ranges, self._columns, cluster=planned.cluster, topics=topics)
        left = sum(r.size for r in ranges)
        for batch in engine_for(self._options.engine, self._options.settings).read(request):
            rows = self._rows(batch)
            left -= batch.num_rows
            self._count(batch, left)
            # Last, because the function and the bar may fail, and `commit` must not commit records of a batch that the
            # caller did not get.
            self._move(_ends(batch))
            self._is_taken_back = False
            yield rows
        self._pass_without_records(planned.ends)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._mapping is None:
            return batch.select(self._names)
        table = pa.Table.from_batches(list(self._mapping.rows(iter([batch]))), self.schema).combine_chunks()
        return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], self.schema))

    def _pass_without_records(self, ends: Mapping[TopicPartition, int]) -> None:
        """Move to these offsets; the remaining offsets before them have only transaction markers.

        If all earlier records are committed, commit these offsets too: otherwise a lag remains until the next batch.
        """
        waiting = self._uncommitted().partitions
        self._move(ends)
        passed = {tp: span for tp, span in self._uncommitted().partitions.items() if tp not in waiting}
        if not passed:
            return
        try:
            without_records = replace(self._handed, partitions=passed)
            commit_existing(self._options, self._cluster, without_records, self._trigger.commit)
        except KafkaGroupError as error:
            log.info("group=%s: offsets without records are not committed yet: %s", self._options.group_id, error)
            return
        self._done |= {tp: span.end for tp, span in passed.items()}

    def _move(self, ends: Mapping[TopicPartition, int]) -> None:
        spans = {tp: s._replace(end=ends.get(tp, s.end)) for tp, s in self._handed.partitions.items()}
        self._handed = replace(self._handed, partitions=spans)

    def _count(self, batch: pa.RecordBatch, left: int) -> None:
        before = self._progress
        self._show(Progress(before.records + batch.num_rows, before.bytes + batch.nbytes, max(0, left)))


def _ends(batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    """Return the offset after the last record of each partition in a batch."""
    table = pa.Table.from_batches([batch.select(PLACE)])
    last = table.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    columns = (last[name].to_pylist() for name in ("topic", "partition", "offset_max"))
    return {TopicPartition(topic, partition): offset + 1 for topic, partition, offset in zip(*columns, strict=True)}
