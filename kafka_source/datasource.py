"""Spark's entry point to the format `kafkagroup`: schema, readers, writers; `register`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafka_source.source.decoded_columns import Readers

from kafka_source.boundary import short_errors
from kafka_source.engine_selection import check_engine, engine_of_tasks
from kafka_source.options import load_options
from kafka_source.schema import schema_for

FORMAT = "kafkagroup"


@short_errors
class KafkaGroupSource(DataSource):
    """`format("kafkagroup")`: a Kafka source and sink for Spark whose queries join a consumer group."""

    # `schema` sets the readers. Spark pickles this object later, so all actions and micro-batches have the same
    # readers.
    _readers: Readers | None = None

    # Spark pickles this object for the process that commits micro-batches, but queries that write get new objects.
    _is_unpickled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the object in another process."""
        self.__dict__.update(state, _is_unpickled=True)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType | str:
        """Check all options, and return the schema of Spark's Kafka source, with decoded columns if requested.

        With `map.function`, return the schema of the function's rows.

        Spark calls this method in `load()`, so `load()` raises errors in the options. If the user gives a schema, as in
        `.schema("value binary")`, Spark does not call this class before the first action.

        Raises:
            OptionError: An option is wrong.
            KafkaGroupError: The schema registry does not have the values' schema, or does not answer.
        """
        options = load_options(self.options)
        # The process that plans the query logs the warning if tasks use librdkafka.
        check_engine(engine_of_tasks(options.engine), options.settings)
        if options.is_member:
            # Imported here: it loads the assignors, which only members need.
            from kafka_source.options.assignment_strategies import strategies_of

            strategies_of(options)
        if options.decoded:
            from kafka_source.source.decoded_columns import readers_of, schema_with_decoded

            self._readers = readers_of(options)
        if options.map_function is not None:
            from kafka_source.source.mapped_rows import schema_returned

            return schema_returned(options, self._readers)
        return schema_for(self.options) if self._readers is None else schema_with_decoded(options, self._readers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from kafka_source.source.batch import BatchReader

        return BatchReader(self.options, schema, self._readers)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query. If the reader cannot be made, its first call raises the error."""
        from kafka_source.source.stream import StreamReader

        try:
            return StreamReader(self.options, schema, self._readers)
        except Exception as reason:
            return _RefusedStreamReader(reason)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from kafka_source.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a streaming query."""
        from kafka_source.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite, commits=self._is_unpickled)


@short_errors
class _RefusedStreamReader(DataSourceStreamReader):
    """Replaces a stream reader that could not be made; its methods raise the error.

    If `streamReader` itself raised, pyspark would call `stop()` on a missing reader, and show an `UnboundLocalError`.
    """

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error of `streamReader`."""
        raise self._reason

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error of `streamReader`; only Spark 4.2 and later pass arguments."""
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the error of `streamReader`; after a restart Spark calls this method first."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error of `streamReader`."""
        raise self._reason


def register(spark: SparkSession) -> None:
    """Register the format in a session, and make the session active in this thread.

    Call `register` if Spark does not find the module `pyspark_kafkagroup`, and in each Python thread that writes. Spark
    looks up a Python sink in the thread's active session. Only the thread that made the session already has an active
    session.

    Spark finds the module if the Python that it starts has this package: the Python of `PYSPARK_PYTHON`, by default the
    `python3` of the PATH. With a local master and without `PYSPARK_PYTHON`, this call lets the session's workers run
    with the Python of this program. Repeated calls are allowed.
    """
    _run_workers_with_this_python(spark)
    try:
        spark.dataSource.register(KafkaGroupSource)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has found by itself; newer versions replace the format.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    # The only public call that makes a session active in every version; `getOrCreate` of Spark 4.3 does not.
    spark.createDataFrame([], "none int")


def _run_workers_with_this_python(spark: SparkSession) -> None:
    # A Spark Connect session has no context, and uses the server's workers. A cluster may not have this Python's path.
    context = getattr(spark, "_sc", None)
    if context is None or not context.master.startswith("local") or "PYSPARK_PYTHON" in os.environ:
        return
    if not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable
