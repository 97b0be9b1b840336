"""The DataFrame of every client, made of the client's messages."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from benchmarks.clients.job import end

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    "key": pl.Binary,
    "value": pl.Binary,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "timestamp": pl.Datetime("ms", "UTC"),
}
MESSAGES_PER_CALL = 10_000


def frame(columns: Mapping[str, list[Any]]) -> pl.DataFrame:
    """Return the DataFrame of a call's messages, so that only these messages are in memory as objects."""
    return pl.DataFrame(columns, schema=SCHEMA)


def done(found: pl.DataFrame) -> None:
    """Report that the DataFrame is complete."""
    assert found.columns == list(COLUMNS)
    end(found.height, int(found["value"].bin.size().sum()))
