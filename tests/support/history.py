"""Write the history of a topic's writer and reader for the checker of Jepsen's Kafka tests.

`jepsen.tests.kafka` describes the operations, of which each line has one as EDN. A key stands for a partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Record = tuple[int, tuple[int, int]]
"""The key of a record, its offset, and the number that stands for it."""

_WRITER, _READER = 0, 1
# The number of records in a poll.
_POLLED = 100


class History:
    """The operations of a writer and a reader, each of which ends before the next operation begins."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def send(self, records: Iterable[Record], *, is_aborted: bool = False) -> None:
        """Add a transaction that writes records."""
        kept = [(":send", key, placed) for key, placed in records]
        sent = [(kind, key, number) for kind, key, (_, number) in kept]
        self._add(_WRITER, ":txn", sent, *((":fail", sent) if is_aborted else (":ok", kept)))

    def read(self, records: Sequence[Record]) -> None:
        """Add the reads of a reader from the start of the topic to its end."""
        keys = sorted({key for key, _ in records})
        self._add(_READER, ":assign", keys, ":ok", keys)
        # The checker takes the records of a key's first poll for unread if no other poll follows.
        for first in range(0, len(records) + _POLLED, _POLLED):
            polled: dict[int, list[tuple[int, int]]] = {}
            for key, placed in records[first : first + _POLLED]:
                polled.setdefault(key, []).append(placed)
            self._add(_READER, ":poll", [(":poll",)], ":ok", [(":poll", polled)])

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
