"""`arrow.read`: read topics, in bounded memory, from a start to an end that are looked up once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from weakref import WeakSet

import pyarrow as pa

from kafka_source.arrow_function import ArrowFunction
from kafka_source.arrow_function import Mapping as FunctionMapping
from kafka_source.boundary import short
from kafka_source.cluster.lookup import Cluster
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.engine_selection import check_engine
from kafka_source.errors import OptionError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.group.model import subscription_of
from kafka_source.kafka_client import cached_client
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.record_columns import Column
from kafka_source.model.stream_offset import Range
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.start_and_end import resolve_batch
from kafkagroup.arrow.progress import Bar, Progress
from kafkagroup.arrow.settings import (
    DEFAULT_COLUMNS,
    Columns,
    Position,
    SettingValue,
    Topics,
    columns_named,
    mapping_of,
    offset_everywhere,
    offsets_at,
    position_options,
    settings_of,
    topics_of,
    with_place,
    without_prefix,
)
from kafkagroup.arrow.stream import Stream

_Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"

DEFAULT_MAX_BYTES = 64 << 20
# A record batch of this size fits a processor's cache; a DataFrame with larger chunks is not faster.
_BATCH_BYTES = 2 << 20


@short
def read(
    topics: Topics,
    settings: Mapping[str, SettingValue],
    *,
    start: Position = "earliest",
    end: Position = "latest",
    columns: Columns = DEFAULT_COLUMNS,
    function: ArrowFunction | None = None,
    schema: pa.Schema | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    fail_on_data_loss: bool = True,
    engine: str = "auto",
    bar: bool | None = None,
) -> BoundedStream:
    """Return the records of topics from a start to an end, whose offsets are looked up in this call.

    Args:
        topics: A topic, several topics, or a pattern made by `re.compile`.
        settings: Settings of Kafka's clients, such as `bootstrap.servers` and `isolation.level`.
        start: `earliest`, a time, `-1h` for one hour ago, `@1500` for offset 1500 or the nearest existing offset in all
            partitions, or offsets by partition.
        end: As `start`, or `latest`; the record at the end offset is not returned.
        columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers. `value string` decodes
            UTF-8.
        function: A function between iterators of record batches, as for `kafkagroup.map_in_arrow`.
        schema: The columns of the function's rows.
        max_bytes: The approximate memory of the stream: one response of a broker, and record batches.
        fail_on_data_loss: Whether to raise an error if retention deletes records during the read; if false, skip them.
        engine: `native`, `librdkafka`, or `auto` for native if it is installed.
        bar: Whether to show a progress bar; None: on a terminal and in a notebook, if tqdm is installed.

    Raises:
        OptionError: A setting or an argument is wrong.
        UnknownTopicError: A topic does not exist.
        DataLossError: A start that is given as an offset is not in the log, and `fail_on_data_loss` is set.
        KafkaGroupError: The brokers do not answer, or refuse.
    """
    wanted = columns_named(columns)
    options = bounded_options(topics, settings, start, end, max_bytes, fail_on_data_loss, engine)
    with without_prefix():
        pinned = pinned_ranges(options, start, end)
    return BoundedStream(options, wanted, pinned, bar, mapping_of(function, schema, wanted, options))


def bounded_options(
    topics: Topics,
    settings: Mapping[str, SettingValue],
    start: Position,
    end: Position,
    max_bytes: int,
    fail_on_data_loss: bool,
    engine: str,
) -> ReadOptions:
    """Return the options of a bounded read, checked; arguments and errors as in `read`."""
    with without_prefix():
        given = {
            **settings_of(settings),
            **topics_of(topics),
            **memory_options(settings, max_bytes),
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            "engine": engine,
        }
        if "group.id" in settings:
            # The group id is only a label here.
            given["group.membership"] = "false"
        for name, position in (("starting", start), ("ending", end)):
            if offset_everywhere(position) is None:
                given |= position_options(name, position, topics)
        options = read_options(given, Where.BATCH)
        check_engine(options.engine, options.settings)
    return options


def memory_options(settings: Mapping[str, SettingValue], max_bytes: int) -> dict[str, str]:
    """Return the options that bound the memory of a stream: half for a response, the rest for record batches.

    Raises:
        OptionError: `fetch.max.bytes` is no number.
    """
    fetched = settings.get("fetch.max.bytes", max_bytes)
    try:
        largest = min(int(fetched), max(1, max_bytes // 2))
    except ValueError:
        raise OptionError("fetch.max.bytes", fetched, "a whole number, at least 0") from None
    return {"kafka.fetch.max.bytes": str(largest), "batch.bytes": str(max(1, min(_BATCH_BYTES, max_bytes // 8)))}


@dataclass(frozen=True, slots=True)
class PinnedRanges:
    """Ranges of partitions, with the ids of the cluster and the topics for which the offsets are valid.

    Attributes:
        ranges: The range of each partition, which may be empty.
        cluster: The id of the cluster.
        topics: The known ids of the topics.
    """

    ranges: tuple[Range, ...]
    cluster: str | None
    topics: Mapping[str, str]

    @property
    def size(self) -> int:
        """The number of offsets."""
        return sum(r.size for r in self.ranges)


def pinned_ranges(options: ReadOptions, start: Position = "", end: Position = "") -> PinnedRanges:
    """Look up the current offsets of the start and the end.

    Args:
        options: From `bounded_options`.
        start: A position as in the option `startingOffsets`, or `@N`.
        end: As for `start`.
    """
    # The engine uses the same client, which then knows the leaders already.
    cluster = Cluster.of(options, cached_client(options.settings))
    selection = subscription_of(options)
    with cluster.metadata_snapshot():
        partitions = cluster.partitions(selection)
        ids = TopicIds(cluster.topics, 0).ids({tp.topic for tp in partitions})
        first, last = offset_everywhere(start), offset_everywhere(end)
        if first is not None or last is not None:
            low, high = cluster.bounds(partitions, partitions, read_committed=options.read_committed)
            if first is not None:
                options = replace(options, starting_offsets={**offsets_at(first, low, high)})
            if last is not None:
                options = replace(options, ending_offsets=offsets_at(last, low, high))
        bounds = resolve_batch(
            cluster, options, PartitionOwner(cluster, selection), partitions, subscribed=partitions, check_all=True
        )
    starts, ends = dict(bounds.starts), dict(bounds.ends)
    if bounds.leaderless:
        # This lookup waits until the partitions have leaders.
        low, high = cluster.bounds(bounds.leaderless, bounds.leaderless, read_committed=options.read_committed)
        starts, ends = starts | low, ends | high
    return PinnedRanges(tuple(Range(*tp, starts[tp], ends[tp]) for tp in partitions), cluster.cluster_id(), ids)


class BoundedStream(Stream):
    """The records of pinned ranges; every use of the stream reads the same rows from the start.

    Args:
        options: The options of the read.
        columns: The columns of the rows.
        pinned: The ranges.
        bar: See `read`.
        mapping: The function that makes rows from these columns; None: the columns are the rows.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[Column, ...],
        pinned: PinnedRanges,
        bar: bool | None,
        mapping: FunctionMapping | None = None,
    ) -> None:
        schema = arrow_schema(columns) if mapping is None or mapping.schema is None else mapping.schema
        super().__init__(schema, Bar(str(subscription_of(options)), bar), pinned.size)
        self._options, self._columns, self._mapping = options, columns, mapping
        self._pinned = replace(pinned, ranges=tuple(r for r in pinned.ranges if r.size))
        self._open: WeakSet[_Batches] = WeakSet()

    def __repr__(self) -> str:
        return f"<records of {', '.join(map(str, self._pinned.ranges)) or 'no range'}>"

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that are read: topic, partition, first offset, and the offset after the last record."""
        return self._pinned.ranges

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches; raise the errors of `FetchEngine.read`."""
        self._check_open()
        batches = self._read() if self._mapping is None else self._mapping.rows(self._read())
        self._open.add(batches)
        return batches

    def _read(self) -> _Batches:
        pinned, records, size = self._pinned, 0, 0
        self._progress = Progress(lag=pinned.size)
        if not pinned.ranges:
            return
        request = FetchRequest.of(
            self._options,
            pinned.ranges,
            self._columns if self._mapping is None else with_place(self._columns),
            cluster=pinned.cluster,
            topics=pinned.topics,
        )
        with without_prefix():
            for batch in engine_for(self._options.engine, self._options.settings).read(request):
                records, size = records + batch.num_rows, size + batch.nbytes
                self._show(Progress(records, size, max(0, pinned.size - records)))
                yield batch
        self._show(Progress(records, size, 0))
        self._bar.close()

    def close(self) -> None:
        """End all uses of the stream."""
        self._is_closed = True
        for batches in list(self._open):
            batches.close()
        self._bar.close()
