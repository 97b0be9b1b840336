"""The progress of an `arrow` stream: its figures, and the bar that a terminal or a notebook shows."""

import sys
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kafka_source.errors import InvalidConfigurationError

_LIBRARY = "tqdm"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stream.

    Attributes:
        records: The returned records.
        bytes: The records' size in Arrow.
        lag: The offsets that are left to read. Offsets without a record count too: those of markers, aborted
            transactions and compacted records.
    """

    records: int = 0
    bytes: int = 0
    lag: int = 0


class Bar:
    """A progress bar in a terminal or a notebook, or no bar.

    Args:
        name: The name of the topics that are read.
        shown: True: always; False: never; None: on a terminal and in a notebook, if tqdm is installed.

    Raises:
        InvalidConfigurationError: `shown` is true, and tqdm is not installed.
    """

    def __init__(self, name: str, shown: bool | None) -> None:
        self._name = name
        self._bar: Any = None
        self._records = 0
        installed = find_spec(_LIBRARY) is not None
        if shown and not installed:
            raise InvalidConfigurationError(
                "A progress bar needs tqdm. Run `pip install 'kafkagroup[arrow]'`, or leave out bar=True."
            )
        self._is_shown = installed and (_has_reader() if shown is None else shown)

    def update(self, progress: Progress) -> None:
        """Show these figures."""
        if not self._is_shown:
            return
        if self._bar is None:
            with warnings.catch_warnings():
                # In a notebook without ipywidgets, tqdm warns that it draws a bar of text.
                warnings.simplefilter("ignore")
                self._bar = import_module("tqdm.auto").tqdm(desc=self._name, unit=" records", unit_scale=True)
        self._bar.total = progress.records + progress.lag
        self._bar.set_postfix(MB=round(progress.bytes / 1e6, 1), lag=progress.lag, refresh=False)
        self._bar.update(progress.records - self._records)
        self._records = progress.records

    def close(self) -> None:
        """Stop updating the bar, which stays visible."""
        if self._bar is not None:
            self._bar.close()
            self._bar, self._records = None, 0


def _has_reader() -> bool:
    # Check for the shell's module, because programs that execute notebooks also load `ipykernel`.
    return "ipykernel.zmqshell" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
