"""What a query notes in the metadata of the offsets that it commits. Pure.

    [id of the stream] [kafkagroup:rewound:<id of the rewind>]

Either part may be missing. Early versions wrote the id alone (the exactly-once sink), the rewind alone, or nothing, and
other programs write what they like: their text is read as a stream's id that no stream of ours has.
"""

from __future__ import annotations

from dataclasses import dataclass

_REWOUND = "kafkagroup:rewound:"


@dataclass(frozen=True, slots=True)
class OffsetNote:
    """The note of one committed offset.

    Attributes:
        stream: The id of the stream that has committed it, from its checkpoint; None: it has none.
        rewound: The id of the last rewind of the partition (see `group.rewind`); None: there was none.
    """

    stream: str | None = None
    rewound: str | None = None

    @staticmethod
    def parse(metadata: str) -> OffsetNote:
        """Return the note in an offset's metadata."""
        stream, mark, rewound = metadata.partition(_REWOUND)
        return OffsetNote(stream.strip() or None, rewound.strip() if mark else None)

    @property
    def metadata(self) -> str:
        """Return the text that `parse` parses."""
        mark = None if self.rewound is None else _REWOUND + self.rewound
        return " ".join(part for part in (self.stream, mark) if part is not None)
