"""What `kafkagroup options` shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_source.options import OPTIONS
from kafka_source.options.reference import default_words, takes_words
from kafkagroup.admin.rows import Rows


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of the format.

    Attributes:
        option: Its name.
        takes: The values that it takes.
        default: Its default.
        does: What it does.
    """

    option: str
    takes: str
    default: str
    does: str


def option_rows(name: str) -> Rows[OptionRow]:
    """Return the options whose name contains `name`."""
    return Rows(
        OptionRow,
        (
            OptionRow(option.name, takes_words(option), default_words(option), option.doc)
            for option in OPTIONS
            if name.lower() in option.name.lower()
        ),
    )
