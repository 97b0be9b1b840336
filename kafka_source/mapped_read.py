"""`map_in_arrow`: a read that runs the user's function in the tasks that fetch, and returns the function's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

from kafka_source.arrow_function import ArrowFunction
from kafka_source.datasource import FORMAT
from kafka_source.errors import OptionError
from kafka_source.source.mapped_rows import text_of


def map_in_arrow(
    reader: DataFrameReader | DataStreamReader,
    f: ArrowFunction,
    schema: StructType | str,
    *,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows that a function makes from the records, as `load().mapInArrow(f, schema)` does at a higher cost.

        def lengths(batches):
            for batch in batches:
                yield pa.record_batch({"size": pc.binary_length(batch["value"]), "offset": batch["offset"]})

        kafkagroup.map_in_arrow(spark.read.options(**options), lengths, "size int, offset bigint",
                                columns=["value", "offset"])

    The function runs in the tasks that fetch, after decoding. Offsets, quotas and commits count the records read.

    Args:
        reader: `spark.read` or `spark.readStream` with its options, without `.schema(…)`; also of Spark Connect.
        f: A function from an iterator of `pyarrow.RecordBatch` to another iterator, pickled like a UDF, at most 16 MiB.
        schema: The columns of the rows that `f` returns.
        columns: The columns of the function's batches; None: all columns of the read. No other columns are made.

    Raises:
        OptionError: The function cannot be pickled, or an option is wrong.
        KafkaGroupError: As for `load()`.
    """
    if columns is not None and (isinstance(columns, str) or not columns):
        raise OptionError("columns", columns, "a list of names of columns, at least one")
    of_function = {
        "map.function": text_of(f),
        "map.schema": schema.json() if isinstance(schema, StructType) else schema,
        "map.columns": ",".join(columns or ()),
    }
    try:
        for name, value in of_function.items():
            reader.option(name, value)
        return reader.format(FORMAT).load()
    finally:
        for name in of_function:
            # A reader cannot drop an option. An empty option counts as not given.
            reader.option(name, "")
