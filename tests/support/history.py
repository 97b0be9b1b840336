"""Write a history of producers and readers, one operation as EDN in a line, for the checker of Jepsen's Kafka tests.

A key stands for a partition. `jepsen.tests.kafka` describes the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

Record = tuple[int, tuple[int, int]]
"""The key of a record, its offset, and the number that stands for it."""


def parts(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield 100 records at a time."""
    return (records[first : first + 100] for first in range(0, len(records), 100))


class History:
    """The operations of some processes, each of which ends before the next operation begins."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def send(self, process: int, records: Iterable[Record], *, outcome: str = ":ok") -> None:
        """Add a transaction that writes records; `:fail`: the transaction was aborted."""
        kept = [(":send", key, placed) for key, placed in records]
        sent = [(kind, key, number) for kind, key, (_, number) in kept]
        self._add(process, ":txn", sent, outcome, kept if outcome == ":ok" else sent)

    def assign(self, process: int, keys: Iterable[int]) -> None:
        """Add a reader's assignment of these keys, which it reads from their starts on."""
        keys = sorted(keys)
        self._add(process, ":assign", keys, ":ok", keys)

    def poll(self, process: int, records: Iterable[Record]) -> None:
        """Add the records that a reader gets."""
        polled: dict[int, list[tuple[int, int]]] = {}
        for key, placed in records:
            polled.setdefault(key, []).append(placed)
        self._add(process, ":poll", [(":poll",)], ":ok", [(":poll", polled)])

    def write(self, path: Path) -> None:
        """Write the operations to a file."""
        path.write_text("".join(f"{line}\n" for line in self._lines))

    def _add(self, process: int, function: str, asked: object, outcome: str, answered: object) -> None:
        for kind, value in ((":invoke", asked), (outcome, answered)):
            at = len(self._lines)
            operation = {":index": at, ":time": at, ":process": process, ":type": kind, ":f": function}
            self._lines.append(_edn({**operation, ":value": value}))


def _edn(value: object) -> str:
    """Return a value as EDN; a text is a keyword."""
    if isinstance(value, Mapping):
        return f"{{{' '.join(f'{_edn(key)} {_edn(one)}' for key, one in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(_edn, value))}]"
    return str(value)
