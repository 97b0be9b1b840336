"""The function of `map.function`: its text in the options, its columns, its result, and its start in a task."""

from __future__ import annotations

import base64
import json
import pickle
import re
import sys
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafka_source.arrow_function import PLACE, ArrowFunction, Mapping, function_named
from kafka_source.client_config import HIDDEN
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import ReadOptions
from kafka_source.schema import schema_of, source_schema

if TYPE_CHECKING:
    from kafka_source.source.decoded_columns import Readers

MOST_BYTES = 16 << 20
"""The maximum size of a pickled function, which every task gets."""


# `module:function`, or a result of `text_of`.
_FORMS = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*|\d+\.\d+:[A-Za-z0-9+/=]+")
# Spark before 4.2 has the argument `timezone`, which Spark's own reader sets to UTC.
_AS_SPARK_READS: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def text_of(function: ArrowFunction) -> str:
    """Return a function as the value of `map.function`: the version of Python, and the pickled function.

    Raises:
        OptionError: The function cannot be pickled, or is too large.
    """
    from pyspark import cloudpickle

    if not callable(function):
        raise OptionError("f", type(function).__name__, "a function of an iterator of pyarrow.RecordBatch")
    try:
        pickled: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    except Exception as error:
        problem = (
            f"The function cannot be pickled: {type(error).__name__}: {error}. Create the object inside the function"
        )
        raise OptionError("f", None, problem=problem) from None
    if len(pickled) > MOST_BYTES:
        problem = (
            f"The pickled function has {len(pickled):,} bytes, more than {MOST_BYTES:,}: load large objects, such as "
            "a model, inside the function"
        )
        raise OptionError("f", None, problem=problem)
    return f"{_version()}:{base64.b64encode(pickled).decode()}"


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True, repr=False)
class _Opener:
    """Opens the function of an option. Every task gets this object."""

    text: str

    def __call__(self) -> ArrowFunction:
        """Return the function.

        Raises:
            PySparkRuntimeError: Another minor version of Python has pickled the function; a UDF raises the same error.
            InvalidConfigurationError: A module is missing, or the name in the module is no `arrow_function`.
        """
        _find_added_files()
        before, _, after = self.text.partition(":")
        if before[0].isdigit():
            if before != _version():
                raise PySparkRuntimeError(
                    errorClass="PYTHON_VERSION_MISMATCH",
                    messageParameters={"worker_version": _version(), "driver_version": before},
                )
            try:
                return cast("ArrowFunction", pickle.loads(base64.b64decode(after)))
            except ImportError as error:
                raise InvalidConfigurationError(
                    f"The function of map.function cannot be opened in a task: {error}. Send the module with "
                    "spark.addArtifact(path, pyfile=True) or SparkContext.addPyFile, or install it on the executors."
                ) from None
        return function_named(self.text)


def _find_added_files() -> None:
    """Make archives of `addPyFile` importable, because Spark adds only modules to a data source's path."""
    from pyspark.core.files import SparkFiles

    if getattr(SparkFiles, "_is_running_on_worker", False):
        added = Path(SparkFiles.getRootDirectory())
        archives = (str(path) for path in added.iterdir() if path.suffix in (".zip", ".egg", ".jar"))
        sys.path += [one for one in archives if one not in sys.path]


def _columns_given(options: ReadOptions, readers: Readers | None) -> StructType:
    """Return the columns that the function gets.

    Args:
        options: The options, with a function.
        readers: The schemas of decoded columns; None: no column is decoded.

    Raises:
        OptionError: `map.function` is neither a name nor a pickle, or `map.columns` names columns that the read lacks.
    """
    if not _FORMS.fullmatch(options.map_function or ""):
        # The value is hidden, because the text may be part of a pickle with values of the function's closure.
        takes = "module:function; to run a function object, call kafkagroup.map_in_arrow"
        raise OptionError("map.function", HIDDEN, takes)
    everything = schema_of(options)
    if readers is not None:
        from kafka_source.source.decoded_columns import schema_with_decoded

        everything = schema_with_decoded(options, readers)
    names = options.map_columns or tuple(everything.names)
    if not set(names) <= set(everything.names) or len(set(names)) < len(names):
        raise OptionError("map.columns", ",".join(names), f"each at most once: {', '.join(everything.names)}")
    return StructType([everything[name] for name in names])


def schema_returned(options: ReadOptions, readers: Readers | None) -> StructType | str:
    """Return the columns that the function returns, for a read without `.schema(…)`.

    Args:
        options: The options, with a function.
        readers: The schemas of decoded columns; None: no column is decoded.

    Raises:
        OptionError: `map.schema` is missing or is no schema, or an option about the function is wrong.
    """
    _columns_given(options, readers)
    if options.map_schema is None:
        raise OptionError("map.schema", None, "the columns of the rows that map.function makes; or use .schema(…)")
    if not options.map_schema.startswith("{"):
        # Spark parses the text, because parsing needs a session.
        return options.map_schema
    try:
        return StructType.fromJson(json.loads(options.map_schema))
    except Exception:
        raise OptionError("map.schema", options.map_schema, "a schema such as `id bigint, name string`") from None


def mapping_of(
    options: ReadOptions, readers: Readers | None, *, returned: StructType
) -> tuple[StructType, Mapping, Readers | None]:
    """Return the columns that a task reads, the function that makes its rows, and the decoded columns' schemas.

    Args:
        options: The options, with a function.
        readers: The schemas of decoded columns; None: not yet known, or no column is decoded.
        returned: The columns of the rows.

    Raises:
        OptionError: An option about the function is wrong.
        KafkaGroupError: See `decoded_columns.readers_of`.
    """
    if options.decoded and readers is None:
        from kafka_source.source.decoded_columns import readers_of

        readers = readers_of(options)
    given = _columns_given(options, readers)
    # These columns are read too, because errors name the topic-partition and the offset.
    places = [field for field in source_schema(headers=False) if field.name in PLACE and field.name not in given.names]
    mapping = Mapping(
        _Opener(options.map_function or ""),
        tuple(given.names),
        to_arrow_schema(returned, **_AS_SPARK_READS),
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )
    return StructType(given.fields + places), mapping, readers
