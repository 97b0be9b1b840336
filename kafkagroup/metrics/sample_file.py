"""Files of samples: one JSON object a line, which `kafkagroup.plots` and `kafkagroup plot` read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.metrics.exporter import Update
from kafkagroup.metrics.sample import Sample


class SampleFile:
    """Appends the samples to a file. The file is created with mode 600: it has names of topics and groups.

    Args:
        path: The file.

    Raises:
        InvalidConfigurationError: The file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidConfigurationError(f"The samples cannot be written to {path}: {error}.") from None
        self._file: TextIO = os.fdopen(handle, "a", encoding="utf-8")

    def export(self, update: Update) -> None:
        """Append the samples of an update, and let other processes see them."""
        for sample in update.samples:
            self._file.write(json.dumps(sample.to_json(), separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_samples(path: str | Path) -> list[Sample]:
    """Return the samples of a file, in its order. A last line that is not complete yet is left out.

    Raises:
        InvalidConfigurationError: The file cannot be read, or a line is no sample; the error names the line.
    """
    try:
        return list(_samples(Path(path)))
    except OSError as error:
        raise InvalidConfigurationError(f"The samples cannot be read: {error}.") from None


def _samples(path: Path) -> Iterator[Sample]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                yield Sample.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidConfigurationError(f"{path}, line {number} is no sample: {error!r}.") from None
