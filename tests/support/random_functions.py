"""Functions for `map_in_arrow` at random: what they are given, the rows that they make, and how they divide them.

A function is plain data, so that it shrinks. Its rows depend on the record only, and not on the division into batches.
"""

import random
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import kafkagroup

# Workers would import this module, and with it hypothesis, for each task.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
Division = Literal["same", "single rows", "one batch", "beside empty ones"]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Kind:
    """A type in DDL and in Arrow, and how a value of it is made."""

    ddl: str
    arrow: pa.DataType
    make: Callable[[random.Random], object]


def _text(chance: random.Random) -> str:
    return "".join(chance.choices("aé漢\U0001f600\x00 ", k=chance.randrange(4)))


_SCALARS = (
    Kind("int", pa.int32(), lambda chance: chance.randrange(-(2**31), 2**31)),
    Kind("bigint", pa.int64(), lambda chance: chance.randrange(-(2**63), 2**63)),
    Kind("smallint", pa.int16(), lambda chance: chance.randrange(-(2**15), 2**15)),
    Kind("boolean", pa.bool_(), lambda chance: chance.random() < 0.5),
    Kind("double", pa.float64(), lambda chance: chance.uniform(-1e9, 1e9)),
    Kind("string", pa.string(), _text),
    Kind("string", pa.large_string(), _text),
    Kind("binary", pa.binary(), lambda chance: chance.randbytes(chance.randrange(5))),
    Kind("decimal(12,2)", pa.decimal128(12, 2), lambda chance: Decimal(chance.randrange(10**11)).scaleb(-2)),
    Kind("date", pa.date32(), lambda chance: date(1970, 1, 1) + timedelta(days=chance.randrange(20_000))),
    Kind("timestamp", pa.timestamp("us", "UTC"), lambda chance: _EPOCH + timedelta(seconds=chance.randrange(10**9))),
)


def _array_of(one: Kind) -> Kind:
    return Kind(
        f"array<{one.ddl}>", pa.list_(one.arrow), lambda chance: [one.make(chance) for _ in range(chance.randrange(3))]
    )


def _map_to(one: Kind) -> Kind:
    return Kind(
        f"map<string,{one.ddl}>",
        pa.map_(pa.string(), one.arrow),
        lambda chance: [(f"k{n}", one.make(chance)) for n in range(chance.randrange(3))],
    )


def _struct_of(fields: list[Kind]) -> Kind:
    return Kind(
        "struct<" + ",".join(f"f{n}:{one.ddl}" for n, one in enumerate(fields)) + ">",
        pa.struct([(f"f{n}", one.arrow) for n, one in enumerate(fields)]),
        lambda chance: {f"f{n}": _or_null(one, chance) for n, one in enumerate(fields)},
    )


def _or_null(kind: Kind, chance: random.Random) -> object:
    return None if chance.random() < 0.2 else kind.make(chance)


_KINDS = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: inner.map(_array_of) | inner.map(_map_to) | st.lists(inner, min_size=1, max_size=3).map(_struct_of),
    max_leaves=4,
)


@dataclass(frozen=True)
class RandomFunction:
    """What hypothesis draws.

    Attributes:
        columns: What it is given; empty: everything.
        kinds: The columns of its rows, and whether each has nulls.
        most: A record makes less rows than this; 1: none.
        division: How the rows are divided into batches.
        eager: Whether it reads everything before its first row.
        batch_rows: The option `batch.rows`.
    """

    columns: tuple[str, ...]
    kinds: tuple[tuple[Kind, bool], ...]
    most: int
    division: Division
    eager: bool
    batch_rows: int

    @property
    def schema(self) -> str:
        """The schema as DDL."""
        columns = (f"c{n} {kind.ddl}" + ("" if null else " not null") for n, (kind, null) in enumerate(self.kinds))
        return ", ".join(columns)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make the rows."""
        made = ([row for record in batch.to_pylist() for row in self._rows(record)] for batch in batches)
        divided = list(made) if self.eager else made
        if self.division == "one batch":
            yield self._batch(list(chain.from_iterable(divided)))
            return
        for rows in divided:
            if self.division == "beside empty ones":
                yield self._batch([])
            yield from map(self._batch, [rows] if self.division != "single rows" else ([row] for row in rows))

    def _rows(self, record: dict[str, Any]) -> Iterator[tuple[object, ...]]:
        # Outside a timestamp is in the session's time zone.
        at = {name: value.astimezone(timezone.utc) for name, value in record.items() if isinstance(value, datetime)}
        chance = random.Random(zlib.crc32(repr(sorted({**record, **at}.items())).encode()))
        for _ in range(chance.randrange(self.most)):
            yield tuple(_or_null(kind, chance) if null else kind.make(chance) for kind, null in self.kinds)

    def _batch(self, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.kinds)
        arrays = [pa.array(column, kind.arrow) for column, (kind, _) in zip(columns, self.kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, [f"c{n}" for n in range(len(arrays))])


functions = st.builds(
    RandomFunction,
    columns=st.lists(st.sampled_from(COLUMNS), unique=True, max_size=4).map(tuple),
    kinds=st.lists(st.tuples(_KINDS, st.booleans()), min_size=1, max_size=4).map(tuple),
    most=st.integers(1, 4),
    division=st.sampled_from(["same", "single rows", "one batch", "beside empty ones"]),
    eager=st.booleans(),
    batch_rows=st.sampled_from([1, 7, 1000]),
)


def compare(spark: SparkSession, options: dict[str, str], function: RandomFunction, *, stream: bool) -> None:
    """Assert that the function makes the same rows in the read task and behind it."""
    whole = {**options, "includeHeaders": "true", "batch.rows": str(function.batch_rows), "startingOffsets": "earliest"}
    outside = spark.read.format("kafkagroup").options(**whole).load()
    outside = outside.select(*function.columns) if function.columns else outside
    outside = outside.mapInArrow(function, function.schema)
    reading = (spark.readStream if stream else spark.read).options(**whole)
    inside = kafkagroup.map_in_arrow(reading, function, function.schema, columns=function.columns or None)
    assert inside.schema == outside.schema
    assert (_streamed(spark, inside) if stream else _rows(inside)) == _rows(outside)


def _streamed(spark: SparkSession, frame: DataFrame) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{folder}/out")
        assert query.awaitTermination(120)
        return _rows(spark.read.schema(frame.schema).parquet(f"{folder}/out"))


def _rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))
