"""The folder of an export: parts with their offsets in their names, and the start of the next export.

    _export.json
    00000-00000000000000000000-00000000000000012345.parquet
    00001-00000000000000000000-00000000000000011987.parquet

The name of a part has its partition, first offset and end offset. So the rename of a finished part also commits its
offsets, and the folder has each record once. In each partition the next export begins at the highest end offset. The
document `_export.json`, which names the topic and the start of each partition, is written before the first part and
never changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.arrow.complete_files import sync_folder
from kafkagroup.arrow.file_formats import BatchWriter, FileFormat, batch_writer

DOCUMENT = "_export.json"
"""The name of the document. Spark and Arrow ignore files whose names begin with an underscore."""

_PARTIAL = ".part.partial"
_VERSION = 1
_PART = re.compile(r"(\d{5,10})-(\d{20})-(\d{20})")


@dataclass(frozen=True, slots=True)
class Begun:
    """The document of a folder.

    Attributes:
        topic: The topic.
        id: The topic's id; None: unknown.
        cluster: The id of the cluster; None: unknown.
        form: The file format of the parts.
        columns: The columns of the records.
        start: The start of the first export.
        starts: The offsets of the start, by partition. A partition that is not in `starts` starts at 0.
    """

    topic: str
    id: str | None
    cluster: str | None
    form: str
    columns: str
    start: str
    starts: Mapping[int, int]

    @property
    def ids(self) -> dict[str, str]:
        """Return the topic's id by its name, if known."""
        return {} if self.id is None else {self.topic: self.id}

    def to_json(self) -> bytes:
        """Return the document."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()

    @staticmethod
    def of_json(text: bytes, folder: Path) -> Begun:
        """Parse a document.

        Raises:
            InvalidConfigurationError: The document is damaged, or of a newer version.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            version = values.pop("version")
            if version == _VERSION:
                starts = {int(partition): int(offset) for partition, offset in values.pop("starts").items()}
                return Begun(**{**values, "starts": starts})
            problem = f"has version {version}, and this kafkagroup reads version {_VERSION}"
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = "is damaged"
        raise InvalidConfigurationError(f"{folder / DOCUMENT} {problem}. Export into a new folder.")


class Parts:
    """Writes the parts of one partition; each part begins at the end of the previous part.

    Args:
        folder: The folder of the parts.
        begun: The document of the export.
        schema: The columns of the records.
        partition: The partition.
        position: The offset at which the first part begins.
    """

    def __init__(self, folder: Path, begun: Begun, schema: pa.Schema, partition: int, position: int) -> None:
        self._folder, self._form, self._schema = folder, FileFormat(begun.form), schema
        self._partition, self._position = partition, position
        self._file: IO[bytes] | None = None
        self._writer: BatchWriter | None = None
        self.bytes = self.count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write records into the part that is open."""
        if self._file is None or self._writer is None:
            self._file = (self._folder / _PARTIAL).open("wb")
            self._writer = batch_writer(self._form, self._schema, self._file)
        self._writer.write(batch)
        self.bytes += batch.nbytes

    def commit(self, end: int) -> None:
        """Rename the open part, which has all records before this offset."""
        if self._file is None or self._writer is None:
            return
        self._writer.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = f"{self._partition:05}-{self._position:020}-{end:020}.{self._form.value}"
        (self._folder / _PARTIAL).rename(self._folder / name)
        sync_folder(self._folder)
        self._file = self._writer = None
        self._position, self.bytes = end, 0
        self.count += 1

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.give_up()
        if self._file is not None:
            self._file.close()
        # Ctrl-C may have come right after `open` had created the file, before its assignment to an attribute.
        (self._folder / _PARTIAL).unlink(missing_ok=True)


def positions_of(folder: Path, begun: Begun) -> dict[int, int]:
    """Return the position of each partition: the end of its last part, or its start.

    Raises:
        InvalidConfigurationError: The parts of a partition do not follow each other.
    """
    found = []
    for path in folder.glob(f"*.{begun.form}"):
        if match := _PART.fullmatch(path.stem):
            partition, start, end = map(int, match.groups())
            found.append((partition, start, end, path))
    positions = dict(begun.starts)
    for partition, start, end, path in sorted(found):
        expected = positions.get(partition, 0)
        if start != expected:
            raise InvalidConfigurationError(
                f"{path} begins at offset {start}, and the part before it ends at {expected}: a part is missing, or "
                "two parts have the same records. Restore the parts, or export into a new folder."
            )
        positions[partition] = end
    return positions


def undo(folder: Path) -> None:
    """Remove the document of an export that did not begin, and the folder if it is empty."""
    (folder / DOCUMENT).unlink()
    # Fails if the folder has other files.
    with suppress(OSError):
        folder.rmdir()
