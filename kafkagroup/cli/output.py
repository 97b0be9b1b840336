"""What a command prints: rows as tables for people, as JSON, or as CSV. The names of columns are the same in all."""

from __future__ import annotations

import csv
import io
import json
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from kafkagroup.cli.listing import Listing

if TYPE_CHECKING:
    from kafkagroup.admin.rows import Rows


class Output(str, Enum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def emit(output: Output, *listings: Listing, document: bool = False) -> None:
    """Print listings to standard output.

    Args:
        output: As tables; as JSON: an array of objects for one listing, an object with an array for each of several;
            or as CSV with a line of names: the first listing.
        listings: The listings.
        document: Whether the JSON of one listing is an object too.
    """
    if output is Output.JSON:
        print_json(as_json(*listings, document=document))
    elif output is Output.CSV:
        typer.echo(as_csv(listings[0].rows), nl=False)
    else:
        # Imported here, because rich takes longer than everything else that a command with JSON needs.
        from kafkagroup.cli.tables import print_tables

        print_tables(listings)


def as_json(*listings: Listing, document: bool = False) -> Any:
    """Return listings as JSON values, see `emit`."""
    if len(listings) == 1 and not document:
        return listings[0].rows.records()
    return {one.name: one.rows.records() for one in listings}


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=1))


def as_csv(rows: Rows[object]) -> str:
    """Return rows as CSV with a line of names; nothing is written for a missing value."""
    from kafkagroup.admin.row_schema import columns
    from kafkagroup.cli.cells import cell

    names = list(columns(rows.kind))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(getattr(row, name), missing="") for name in names] for row in rows)
    return text.getvalue()
