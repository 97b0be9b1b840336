"""Read the positions of queries from the files of their checkpoints, and change checkpoints of Spark's Kafka source.

The folder `offsets` of a checkpoint (Spark's OffsetSeqLog) has a file for each micro-batch: a version, a line about the
batch, and a line for each source. In version 1, the lines belong to source 0, 1 and so on. In version 2, which is for
named sources, each line begins with the source's name and a colon. A file of the same name in `commits` marks the batch
as finished. Spark's Kafka source writes the start of a query's first batch to `sources/{source}/0`
(KafkaSourceInitialOffsetWriter).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from assignors.model import TopicPartition
from kafka_source.errors import NEW_OUTPUT, InvalidConfigurationError
from kafka_source.model.stream_offset import Span, StreamOffset, is_of_spark

_NUMBERED, _NAMED = "v1", "v2"
_NO_OFFSET = "-"

# Settings that Spark stores for a new query. A batch without these settings gets the values of Spark's first versions.
# All other settings come from the session (OffsetSeqMetadata.relevantSQLConfDefaultValues).
_CONF_OF_NEW_QUERY = {
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
}
_CONF_OF_NAMED_SOURCES = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}


@dataclass(frozen=True, slots=True)
class Position:
    """The position at which a source of a query continues.

    Attributes:
        source: The source's name in the query; without a name, the source's number from 0.
        offsets: The next offset to read in each partition; finished batches contain all earlier records.
        pending: The end of a batch that is planned and not finished; None: no such batch.
    """

    source: str
    offsets: Mapping[TopicPartition, int]
    pending: Mapping[TopicPartition, int] | None = None

    def starting_offsets(self) -> str:
        """Return the offsets as JSON for the option `startingOffsets`."""
        by_topic: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            by_topic.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return json.dumps(by_topic, separators=(",", ":"))


def min_offsets(positions: Iterable[Position]) -> dict[TopicPartition, int]:
    """Return the lowest offset of each partition in several sources. A group that starts at them skips no record."""
    found: dict[TopicPartition, int] = {}
    for position in positions:
        for tp, offset in position.offsets.items():
            found[tp] = min(offset, found.get(tp, offset))
    return found


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A file of `offsets`, and the new text of the file, with which the query can continue.

    Attributes:
        batch: The number of the micro-batch, which is the file's name.
        text: The whole text.
    """

    batch: int
    text: str


@dataclass(frozen=True, slots=True)
class _Batch:
    """A file of `offsets`: its version, the line about the batch, and the text of each source's offset, in order."""

    version: str
    about: str
    sources: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> _Batch:
        version, _, rest = text.partition("\n")
        about, *lines = rest.split("\n")
        if version == _NAMED:
            named = (line.partition(":") for line in lines)
            return cls(version, about, {name: offset for name, _, offset in named})
        return cls(version, about, {str(number): line for number, line in enumerate(lines)})

    def text(self) -> str:
        begins = {name: f"{name}:" if self.version == _NAMED else "" for name in self.sources}
        return "\n".join((self.version, self.about, *(begins[name] + line for name, line in self.sources.items())))

    def offset(self, source: str) -> StreamOffset | None:
        """Return the offset of a source; None if the source is not Kafka's, or has no offset in this batch."""
        return _offset(self.sources.get(source, _NO_OFFSET))


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query.

    Attributes:
        path: A local path, or a URI that pyarrow knows, such as `s3://…` and `hdfs://…`.
    """

    path: str

    def positions(self) -> list[Position]:
        """Return the positions of each Kafka source of the query.

        Raises:
            InvalidConfigurationError: The checkpoint cannot be read, or has no offsets of a Kafka source.
        """
        found = [position for source in self._sources if (position := self._position(source)) is not None]
        if not found:
            raise InvalidConfigurationError(f"The checkpoint {self.path} has no offsets of a Kafka source.")
        return found

    def rewrite(self, conf: Mapping[str, str] | None = None) -> Rewrite | None:
        """Return the file that has to change so that kafkagroup continues this checkpoint of Spark's Kafka source.

        None if no file has to change, because the checkpoint is kafkagroup's or the query has finished a batch.

        Args:
            conf: Settings of Spark for a query without a batch, such as `spark.sql.streaming.multipleWatermarkPolicy`.
                Other settings that Spark stores in a checkpoint get Spark's defaults.

        Raises:
            InvalidConfigurationError: The checkpoint cannot be read.
        """
        if not self._batches:
            return self._first_batch(conf or {})
        if self._finished is not None or max(self._batches) != 0:
            return None
        batch = self._batches[0]
        lines = {source: self._with_start(source, text) for source, text in batch.sources.items()}
        return None if lines == batch.sources else Rewrite(0, replace(batch, sources=lines).text())

    def _first_batch(self, conf: Mapping[str, str]) -> Rewrite | None:
        """Return an empty first batch at the start that Spark's Kafka source has written; None without such a start."""
        initial = {source: self._initial(source) for source in self._sources}
        if not any(initial.values()):
            return None
        lines = {
            name: _NO_OFFSET if one is None else _line(replace(one, of_spark=False)) for name, one in initial.items()
        }
        version, kept = _NUMBERED, _CONF_OF_NEW_QUERY
        if not all(name.isdigit() for name in lines):
            version, kept = _NAMED, {**kept, **_CONF_OF_NAMED_SOURCES}
        about = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {**kept, **conf}}
        if version == _NUMBERED:
            # Version 1 has a line for each number, even for a source without a start.
            lines = {str(n): lines.get(str(n), _NO_OFFSET) for n in range(max(map(int, lines)) + 1)}
        else:
            lines = {name: line for name, line in lines.items() if line != _NO_OFFSET}
        return Rewrite(0, _Batch(version, json.dumps(about), lines).text())

    def apply(self, change: Rewrite) -> None:
        """Write the changed file.

        Raises:
            InvalidConfigurationError: The file cannot be written.
        """
        system, base = self._place
        name = f"{base}/offsets/{change.batch}"
        try:
            system.create_dir(f"{base}/offsets")
            # Hadoop's checksum file beside a local file belongs to the old text.
            for other in (f"{base}/offsets/.{change.batch}.crc", f"{base}/offsets/.{change.batch}.new"):
                if system.get_file_info(other).type is not fs.FileType.NotFound:
                    system.delete_file(other)
            with system.open_output_stream(f"{base}/offsets/.{change.batch}.new") as file:
                file.write(change.text.encode())
            system.move(f"{base}/offsets/.{change.batch}.new", name)
        except OSError as problem:
            raise InvalidConfigurationError(f"The file {name} cannot be written: {problem}") from None

    # ---- positions

    def _position(self, source: str) -> Position | None:
        last = max(self._batches, default=None)
        pending = None
        if last is not None and last != self._finished:
            ending = self._batches[last].offset(source)
            pending = None if ending is None else ending.ends
        if self._finished is None:
            start = self._initial(source) or self._start_of_first(source)
        elif self._finished in self._batches:
            start = self._batches[self._finished].offset(source) or self._initial(source)
        else:
            raise InvalidConfigurationError(
                f"The checkpoint {self.path} has batch {self._finished} in commits but not in offsets: it is damaged."
            )
        return None if start is None else Position(source, start.ends, pending)

    def _start_of_first(self, source: str) -> StreamOffset | None:
        """Return an offset that ends at the start of kafkagroup's first batch; None: no such batch."""
        end = self._batches[0].offset(source) if 0 in self._batches else None
        if end is None:
            return None
        if end.of_spark:
            raise InvalidConfigurationError(
                f"The first batch of the checkpoint {self.path} is not finished, and the file sources/{source}/0 with "
                "the batch's start does not exist."
            )
        spans = {tp: Span(span.start, span.start, -1) for tp, span in end.partitions.items()}
        return StreamOffset(spans)

    def _with_start(self, source: str, text: str) -> str:
        """Return a source's line of the first batch; add the batch's start to a line of Spark's Kafka source."""
        end, initial = _offset(text), self._initial(source)
        if end is None or not end.of_spark:
            return text
        if initial is None:
            raise InvalidConfigurationError(
                f"The checkpoint {self.path} has no file sources/{source}/0, which would say where its first batch "
                f"starts: start the query with a new checkpointLocation. {NEW_OUTPUT}."
            )
        starts = initial.ends
        if missing := sorted(set(end.partitions) - set(starts)):
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing)
            raise InvalidConfigurationError(
                f"The file sources/{source}/0 of the checkpoint {self.path} does not say where {names} start."
            )
        return _line(StreamOffset({tp: Span(starts[tp], last, -1) for tp, last in end.ends.items()}))

    # ---- files

    @cached_property
    def _place(self) -> tuple[fs.FileSystem, str]:
        try:
            if "://" not in self.path:
                place: tuple[fs.FileSystem, str] = (fs.LocalFileSystem(), str(Path(self.path).absolute()))
            else:
                place = fs.FileSystem.from_uri(self.path)
            if place[0].get_file_info(place[1]).type is not fs.FileType.Directory:
                raise InvalidConfigurationError(f"There is no checkpoint {self.path}.")
        except (OSError, ValueError) as problem:
            raise InvalidConfigurationError(f"The checkpoint {self.path} cannot be read: {problem}") from None
        return place

    def _names(self, folder: str) -> list[str]:
        """Return the names of the files and folders of a folder; empty if there is no folder."""
        system, base = self._place
        entries = system.get_file_info(fs.FileSelector(f"{base}/{folder}", allow_not_found=True))
        return sorted(entry.base_name for entry in entries)

    def _numbers(self, folder: str) -> list[int]:
        """Return the names in a folder that are numbers, as numbers."""
        return [int(name) for name in self._names(folder) if name.isdigit()]

    def _read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file."""
        system, base = self._place
        try:
            with system.open_input_stream(f"{base}/{name}") as file:
                return bytes(file.read()).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidConfigurationError(f"The file {name} of {self.path} cannot be read: {problem}") from None

    @cached_property
    def _batches(self) -> dict[int, _Batch]:
        """The first batch and the batches that may be unfinished, by number."""
        numbers = self._numbers("offsets")
        wanted = {number for number in numbers if self._finished is None or number >= self._finished}
        return {number: self._batch(number) for number in sorted(wanted)}

    def _batch(self, number: int) -> _Batch:
        batch = _Batch.of(self._read(f"offsets/{number}") or "")
        self._check_version(f"offsets/{number}", batch.version, _NUMBERED, _NAMED)
        return batch

    @cached_property
    def _finished(self) -> int | None:
        """The number of the last finished batch; None: no batch is finished."""
        return max(self._numbers("commits"), default=None)

    @cached_property
    def _sources(self) -> list[str]:
        """The names of all sources; names that are numbers are in the order of the numbers."""
        names = {name for batch in self._batches.values() for name in batch.sources}
        noted = {name for name in self._names("sources") if not name.startswith(".")}
        return sorted(names | noted, key=lambda name: (0, int(name), "") if name.isdigit() else (1, 0, name))

    def _initial(self, source: str) -> StreamOffset | None:
        """Return the offsets at which Spark's Kafka source has started a query; None: their file is missing."""
        text = self._read(f"sources/{source}/0")
        if text is None:
            return None
        # The first byte is 0, which Spark 2.1 needed. The version follows, which Spark 2.1 did not write.
        version, _, rest = text.removeprefix("\0").strip().rpartition("\n")
        found = _offset(rest)
        if found is not None and version:
            self._check_version(f"sources/{source}/0", version, _NUMBERED)
        return found

    def _check_version(self, name: str, version: str, *known: str) -> None:
        if version not in known:
            raise InvalidConfigurationError(
                f"The file {name} of {self.path} has version {version[:20]!r}; this command reads "
                f"{' and '.join(known)}."
            )


def _offset(text: str) -> StreamOffset | None:
    """Parse the offset of Spark's or kafkagroup's Kafka source; None: no offset, or the offset of another source."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or not value or not (is_of_spark(value) or "partitions" in value):
        return None
    return StreamOffset.from_json(value)


def _line(offset: StreamOffset) -> str:
    return json.dumps(offset.to_json(), separators=(",", ":"))
