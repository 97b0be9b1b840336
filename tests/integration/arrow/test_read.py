"""`arrow.read`: the same rows in every library, from a real broker, without Spark."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from importlib import import_module

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kafka_source.errors import DataLossError, KafkaGroupError, OptionError, UnknownTopicError
from kafkagroup import arrow
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, write_records

RECORDS = 3000
PARTITIONS = 3


def write(
    kafka: EmbeddedKafka,
    topic: str,
    numbers: Sequence[int],
    *,
    at_ms: Callable[[int], int] | None = None,
    partitions: int = PARTITIONS,
) -> None:
    """Write numbers, each to the partition that it has as remainder."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    for number in numbers:
        text = str(number).encode()
        # 0 is librdkafka's word for now.
        when = 0 if at_ms is None else at_ms(number)
        producer.produce(topic, text, text, number % partitions, headers=[("n", text)], timestamp=when)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def orders(kafka: EmbeddedKafka) -> str:
    """A topic with the numbers [0, RECORDS)."""
    kafka.create_topic("arrow-orders", partitions=PARTITIONS)
    write(kafka, "arrow-orders", range(RECORDS))
    return "arrow-orders"


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


def numbers(stream: arrow.Stream) -> list[int]:
    return sorted(int(value) for batch in stream for value in batch["value"].to_pylist())


ALL = list(range(RECORDS))


def frame_of_polars(stream: arrow.Stream) -> list[int]:
    return pl.DataFrame(stream).select(pl.col("value").cast(pl.Int64)).to_series().sort().to_list()


def frame_of_pandas(stream: arrow.Stream) -> list[int]:
    frame: pd.DataFrame = stream.to_reader().read_pandas()
    return sorted(frame["value"].astype(int))


def table_of_pyarrow(stream: arrow.Stream) -> list[int]:
    return sorted(map(int, pa.table(stream)["value"].to_pylist()))


def table_of_duckdb(stream: arrow.Stream) -> list[int]:
    table = duckdb.sql("select value::int n from stream order by n")
    assert table is not None
    return [row[0] for row in table.fetchall()]


@pytest.mark.parametrize("library", [frame_of_polars, frame_of_pandas, table_of_pyarrow, table_of_duckdb])
def test_every_library_reads_the_same_stream(
    orders: str, settings: dict[str, str], library: Callable[[arrow.Stream], list[int]]
) -> None:
    with arrow.read(orders, settings, columns="value string") as stream:
        assert library(stream) == ALL
        assert library(stream) == ALL, "a second use of the stream reads the same rows"


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_rows_have_the_columns_that_were_asked_for(orders: str, settings: dict[str, str], engine: str) -> None:
    with arrow.read(orders, settings, columns=["offset", "headers", "topic", "partition"], engine=engine) as stream:
        table = pa.table(stream)
    assert table.schema == stream.schema
    assert table.column_names == ["offset", "headers", "topic", "partition"]
    assert table["topic"].unique().to_pylist() == [orders]
    assert table.num_rows == RECORDS
    assert table["headers"][0].as_py()[0]["key"] == "n"


def test_what_came_later_is_not_read(kafka: EmbeddedKafka, settings: dict[str, str], topic: Topic) -> None:
    name = topic("arrow-later", partitions=PARTITIONS)
    write(kafka, name, range(30))
    with arrow.read(name, settings) as stream:
        write(kafka, name, range(30, 60))
        assert numbers(stream) == list(range(30))
        assert stream.progress.records == 30 and stream.progress.lag == 0 and stream.progress.bytes > 0


def test_starts_and_ends(kafka: EmbeddedKafka, settings: dict[str, str], topic: Topic) -> None:
    name = topic("arrow-positions", partitions=PARTITIONS)
    now = round(time.time() * 1000)
    # One record a minute; the last one is a minute old.
    write(kafka, name, range(60), at_ms=lambda number: now - (60 - number) * 60_000)

    def read(**position: object) -> list[int]:
        return numbers(arrow.read(name, settings, **position))  # type: ignore[arg-type]

    assert read(start="@15") == list(range(45, 60))
    assert read(end="@5") == list(range(15))
    assert read(start="-630s") == list(range(50, 60))
    assert read(start=datetime.fromtimestamp(now / 1000 - 630, timezone.utc), end="-330s") == list(range(50, 55))
    assert read(start={0: 19, 1: 20, 2: 18}) == [56, 57, 59]
    assert read(start="-1s") == [], "nothing is so new"
    assert read(start="@1000") == [], "the nearest offset is the end"
    with pytest.raises(OptionError, match=r"^Option start"):
        read(start={0: 1})
    with pytest.raises(OptionError, match=r"latest .* would read nothing"):
        read(start="latest")
    with pytest.raises(DataLossError, match=r"offset 1000.*give fail_on_data_loss=False"):
        read(start={0: 1000, 1: 0, 2: 0})


def test_several_topics_and_a_pattern(kafka: EmbeddedKafka, settings: dict[str, str]) -> None:
    import re

    for name in ("arrow-many-1", "arrow-many-2"):
        kafka.create_topic(name, PARTITIONS)
        write(kafka, name, range(10))
    expected = sorted(2 * list(range(10)))
    assert numbers(arrow.read(["arrow-many-1", "arrow-many-2"], settings)) == expected
    assert numbers(arrow.read(re.compile("^arrow-many-"), settings)) == expected
    assert numbers(arrow.read(re.compile("^ARROW-many-", re.IGNORECASE), settings)) == expected


def test_a_topic_that_does_not_exist_is_said_at_once(settings: dict[str, str]) -> None:
    with pytest.raises(UnknownTopicError, match="arrow-none does not exist"):
        arrow.read("arrow-none", settings)


def test_an_error_reaches_the_library_that_reads(kafka: EmbeddedKafka, settings: dict[str, str], topic: Topic) -> None:
    name = topic("arrow-no-text", partitions=1)
    write_records(kafka.bootstrap_servers, name, [{"value": b"\xff\xfe"}])
    with arrow.read(name, settings, columns="value string") as stream:
        with pytest.raises(KafkaGroupError, match=f"{name}-0 at offset 0"):
            list(stream)
        with pytest.raises(Exception, match=f"{name}-0 at offset 0"):
            pl.DataFrame(stream)


def test_a_closed_stream_is_over(orders: str, settings: dict[str, str]) -> None:
    with arrow.read(orders, settings, max_bytes=1 << 16) as stream:
        batches: Iterator[pa.RecordBatch] = iter(stream)
        next(batches)
    assert list(batches) == []
    with pytest.raises(ValueError, match="closed"):
        iter(stream)


def test_a_bar_is_shown_where_it_is_asked_for(
    orders: str, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    numbers(arrow.read(orders, settings, bar=True))
    assert "3.00k/3.00k" in capsys.readouterr().err
    # As in a program that executes notebooks.
    import_module("ipykernel")
    numbers(arrow.read(orders, settings))
    assert capsys.readouterr().err == ""


def test_every_library_has_the_same_cells(kafka: EmbeddedKafka, settings: dict[str, str], topic: Topic) -> None:
    name = topic("arrow-cells", partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(name, b"\x00\xff", "ключ", timestamp=5, headers=[("n", b"\x01"), ("none", None)])
    producer.produce(name, None, None, timestamp=6)
    producer.produce(name, b"", "", timestamp=7)
    assert producer.flush(60) == 0
    with arrow.read(name, settings, columns="key string, value, topic, offset, timestamp, headers") as stream:
        polars, pandas = pl.DataFrame(stream).to_dicts(), stream.to_reader().read_pandas()
        table = duckdb.sql('select key, value, topic, "offset", headers from stream order by "offset"')
        assert table is not None
        cells = table.fetchall()
        rows: list[dict[str, object]] = pa.table(stream).to_pylist()
    assert [row["key"] for row in rows] == ["ключ", None, ""]
    assert [row["value"] for row in rows] == [b"\x00\xff", None, b""]
    assert [row["headers"] for row in rows] == [
        [{"key": "n", "value": b"\x01"}, {"key": "none", "value": None}],
        None,
        None,
    ]
    assert polars == rows
    others = [tuple(row[column] for column in ("key", "value", "topic", "offset", "headers")) for row in rows]
    assert cells == others
    assert list(pandas["key"]) == ["ключ", None, ""] and list(pandas["value"]) == [b"\x00\xff", None, b""]
    assert [row["timestamp"] for row in rows] == [at.to_pydatetime() for at in pandas["timestamp"]]


def halves(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        half = pa.compute.divide(batch["value"].cast(pa.int64()), 2)
        yield pa.record_batch({"half": half}).filter(pa.compute.less(half, 10))


HALVES = pa.schema([("half", pa.int64())])


def test_a_function_makes_the_rows(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("arrow-mapped", partitions=PARTITIONS)
    write(kafka, name, range(RECORDS))
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with arrow.read(name, settings, columns="value string", function=halves, schema=HALVES) as stream:
        assert stream.schema == HALVES
        for _ in range(2):
            assert sorted(pl.DataFrame(stream)["half"]) == [number // 2 for number in range(20)]
        assert stream.progress.records == RECORDS
    wrong = pa.schema([("half", pa.int32())])
    with pytest.raises(KafkaGroupError, match="column half as int64, but the schema has int32"):
        list(arrow.read(name, settings, columns="value string", function=halves, schema=wrong))
    with pytest.raises(OptionError, match="schema is missing; it takes a function of record batches, and a pyarrow"):
        arrow.read(name, settings, function=halves)
