"""Export a topic to a file or into a folder (`export_folder`), and refuse the folder of another export."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import DataLossError, InvalidConfigurationError
from kafka_source.group.model import subscription_of
from kafka_source.kafka_client import cached_client
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.identity import describe_recreated, is_recreated
from kafka_source.model.record_columns import Column
from kafka_source.options import ReadOptions
from kafkagroup.arrow.complete_files import check_absent, complete_file, locked
from kafkagroup.arrow.export_folder import DOCUMENT, Begun, Parts, positions_of, undo
from kafkagroup.arrow.file_formats import FileFormat, batch_writer
from kafkagroup.arrow.progress import Bar, Progress
from kafkagroup.arrow.reading import (
    DEFAULT_MAX_BYTES,
    BoundedStream,
    PinnedRanges,
    bounded_options,
    pinned_ranges,
    read,
)
from kafkagroup.arrow.settings import DEFAULT_COLUMNS, Position, SettingValue, columns_named, without_prefix

DEFAULT_PART_BYTES = 128 << 20
"""The size in Arrow at which a part ends."""

_ANEW = "Export into a new folder"


@dataclass(slots=True)
class Exported:
    """The result of an export.

    Attributes:
        records: The number of records.
        bytes: The records' size in Arrow.
        files: The number of files.
    """

    records: int = 0
    bytes: int = 0
    files: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the records of a batch."""
        self.records += batch.num_rows
        self.bytes += batch.nbytes


@dataclass(frozen=True, slots=True)
class Export:
    """The arguments of an export.

    Attributes:
        topic: The topic.
        settings: Settings of Kafka's clients.
        form: The file format; None: the format of the folder, or Parquet.
        start: The start of the export, see `read`; None: the end of the folder's parts, or `earliest` if it has none.
        end: See `read`.
        columns: See `read`; None: the columns of the folder, or the default.
        part_bytes: The size in Arrow at which a part of a folder ends.
        accept_loss: Whether to skip records that retention has deleted; if false, raise an error.
        engine: See `read`.
        decode: Decodes the values of a file's batches, as `decode_values` does; None: values stay bytes.
        bar: See `read`.
        is_interrupted: Returns whether to raise KeyboardInterrupt before the next batch. Python's own KeyboardInterrupt
            may be lost during an import, such as pyarrow's import of pandas.
    """

    topic: str
    settings: Mapping[str, SettingValue] = field(repr=False)
    form: FileFormat | None
    start: Position | None = None
    end: Position = "latest"
    columns: str | None = None
    part_bytes: int = DEFAULT_PART_BYTES
    accept_loss: bool = False
    engine: str = "auto"
    decode: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = field(default=None, repr=False)
    bar: bool | None = None
    is_interrupted: Callable[[], bool] = field(default=lambda: False, repr=False)

    def to_file(self, path: Path, *, overwrite: bool = False) -> Exported:
        """Write a file that appears only when it is complete.

        Raises:
            InvalidConfigurationError: The file exists and must not be overwritten, or cannot be written.
            KafkaGroupError: Any error of `read` and `FetchEngine.read`.
        """
        check_absent(path, overwrite=overwrite)
        with self._stream() as stream, complete_file(path, overwrite=overwrite) as file:
            return self._copy(stream, file)

    def to_pipe(self, file: IO[bytes]) -> Exported:
        """Write to a pipe of another program; raise the errors of `read` and `FetchEngine.read`."""
        with self._stream() as stream:
            return self._copy(stream, file, pipe=True)

    def _stream(self) -> BoundedStream:
        return read(
            self.topic,
            self.settings,
            start="earliest" if self.start is None else self.start,
            end=self.end,
            columns=self.columns or DEFAULT_COLUMNS,
            fail_on_data_loss=not self.accept_loss,
            engine=self.engine,
            bar=self.bar,
        )

    def _copy(self, stream: BoundedStream, file: IO[bytes], *, pipe: bool = False) -> Exported:
        exported = Exported(files=1)
        batches = self._batches(stream)
        if self.decode is not None:
            batches = self.decode(batches)
        # The first batch decides the type of decoded values.
        first = next(batches, None)
        schema = stream.schema if first is None else first.schema
        writer = batch_writer(self.form or FileFormat.PARQUET, schema, file, pipe=pipe)
        try:
            for batch in batches if first is None else chain((first,), batches):
                writer.write(batch)
                exported.add(batch)
            writer.finish()
        except BaseException:
            writer.give_up()
            raise
        return exported

    def _batches(self, stream: BoundedStream) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if self.is_interrupted():
                raise KeyboardInterrupt
            yield batch

    def to_folder(self, folder: Path) -> Exported:
        """Write the records that the folder does not have yet, and return their number.

        Raises:
            InvalidConfigurationError: The folder is of another export, another process writes it, a part is missing,
                or the folder cannot be written.
            DataLossError: Records that are missing in the folder no longer exist in the topic, or the topic was
                recreated.
            KafkaGroupError: Any error of `read` and `FetchEngine.read`.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InvalidConfigurationError(f"{folder} cannot be created: {problem.strerror}.") from None
        with locked(folder / DOCUMENT) as file:
            text = file.read()
            if text:
                return self._continue(folder, Begun.of_json(text, folder))
            try:
                begun, options, pinned = self._begin(folder)
                file.write(begun.to_json())
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                undo(folder)
                raise
            return self._write(folder, begun, options, pinned, begun.starts)

    def _begin(self, folder: Path) -> tuple[Begun, ReadOptions, PinnedRanges]:
        others = sorted(path.name for path in folder.iterdir() if path.name != DOCUMENT)
        if others:
            raise InvalidConfigurationError(
                f"{folder} has files and is not the folder of an export: {', '.join(others[:5])}. Name a new folder."
            )
        columns = columns_named(self.columns or DEFAULT_COLUMNS)
        start = "earliest" if self.start is None else self.start
        options = self._options(start, self.end)
        with without_prefix():
            pinned = pinned_ranges(options, start, self.end)
        begun = Begun(
            self.topic,
            pinned.topics.get(self.topic),
            pinned.cluster,
            (self.form or FileFormat.PARQUET).value,
            _names(columns),
            str(start),
            {r.partition: r.start for r in pinned.ranges},
        )
        return begun, options, pinned

    def _continue(self, folder: Path, begun: Begun) -> Exported:
        self._check_same(folder, begun)
        positions = positions_of(folder, begun)
        options = self._options("earliest", "latest")
        with without_prefix():
            now = _check_identity(Cluster.of(options, cached_client(options.settings)), options, begun, folder)
            positions |= dict.fromkeys(now - positions.keys(), 0)
            if gone := positions.keys() - now:
                tp = TopicPartition(begun.topic, min(gone))
                raise DataLossError.of_deleted(tp, planned=positions[tp.partition])
            pinned = pinned_ranges(replace(options, starting_offsets={begun.topic: positions}))
            wanted = pinned_ranges(self._options("earliest", self.end), end=self.end)
        for r in pinned.ranges:
            if r.start < positions[r.partition]:
                # Raise even if losses are accepted, because the folder would lack the records of this new log.
                raise DataLossError(
                    topic=r.topic,
                    partition=r.partition,
                    planned=positions[r.partition],
                    truncated_to=r.start,
                    advice=_ANEW,
                )
        # The folder's parts may reach further than the end of this export.
        ends = {r.partition: r.end for r in wanted.ranges}
        ranges = tuple(r._replace(end=max(r.start, ends[r.partition])) for r in pinned.ranges)
        # Pass the id of the folder's topic, so that a recreated topic is refused.
        return self._write(folder, begun, options, replace(pinned, ranges=ranges, topics=begun.ids), positions)

    def _options(self, start: Position, end: Position) -> ReadOptions:
        options = bounded_options(
            self.topic, self.settings, start, end, DEFAULT_MAX_BYTES, not self.accept_loss, self.engine
        )
        return replace(options, batch_bytes=min(options.batch_bytes, self.part_bytes))

    def _check_same(self, folder: Path, begun: Begun) -> None:
        pairs = (
            ("topic", begun.topic, self.topic),
            ("format", begun.form, None if self.form is None else self.form.value),
            ("columns", begun.columns, None if self.columns is None else _names(columns_named(self.columns))),
            ("start", begun.start, None if self.start is None else str(self.start)),
        )
        for name, known, wanted in pairs:
            if wanted not in (None, known):
                raise InvalidConfigurationError(
                    f"{folder} was begun with the {name} {known}, not {wanted}. Leave the {name} out to continue, or "
                    "export into a new folder."
                )

    def _write(
        self, folder: Path, begun: Begun, options: ReadOptions, pinned: PinnedRanges, positions: Mapping[int, int]
    ) -> Exported:
        """Write the ranges, partition by partition."""
        exported, left = Exported(), pinned.size
        columns = columns_named(begun.columns)
        names = [column.name for column in columns]
        with_offset = columns if "offset" in names else (*columns, Column("offset"))
        with closing(Bar(begun.topic, self.bar)) as bar:
            for r in pinned.ranges:
                parts = Parts(folder, begun, arrow_schema(columns), r.partition, positions[r.partition])
                with parts, BoundedStream(options, with_offset, replace(pinned, ranges=(r,)), bar=False) as stream:
                    at = r.start
                    for batch in self._batches(stream):
                        end = batch["offset"][-1].as_py() + 1
                        batch = batch.select(names)
                        parts.write(batch)
                        exported.add(batch)
                        left, at = left - (end - at), end
                        bar.update(Progress(exported.records, exported.bytes, left))
                        if parts.bytes >= self.part_bytes:
                            parts.commit(end)
                    left -= r.end - at
                    parts.commit(r.end)
                exported.files += parts.count
            bar.update(Progress(exported.records, exported.bytes, left))
        return exported


def _check_identity(cluster: Cluster, options: ReadOptions, begun: Begun, folder: Path) -> set[int]:
    """Return the topic's partitions; refuse a topic that is not the folder's.

    Raises:
        InvalidConfigurationError: The topic is of another cluster.
        DataLossError: The topic was deleted and created again.
        UnknownTopicError: The topic does not exist.
    """
    with cluster.metadata_snapshot():
        partitions = {tp.partition for tp in cluster.partitions(subscription_of(options))}
        now, topic = cluster.cluster_id(), cluster.topics([begun.topic])[begun.topic]
    if is_recreated(begun.cluster, now):
        raise InvalidConfigurationError(
            f"{folder} has records of the cluster {begun.cluster}, and {options.bootstrap_servers} leads to the "
            f"cluster {now}. Correct the servers, or export into a new folder."
        )
    if topic is not None and is_recreated(begun.id, topic.id):
        raise DataLossError(
            topic=begun.topic,
            partition=-1,
            planned=-1,
            sentence=f"{folder} has records of another topic {begun.topic}",
            reason=describe_recreated(topic.id),
            advice=_ANEW,
        )
    return partitions


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} string" if column.text else column.name for column in columns)
