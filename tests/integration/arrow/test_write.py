"""`arrow.write`: tables of any library become records, which `arrow.read` gives back."""

from collections.abc import Callable, Iterator

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kafka_source.errors import DeliveryError, InvalidConfigurationError, OptionError, UnknownTopicError
from kafkagroup import arrow
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic

PARTITIONS = 3
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def name(topic: Topic) -> str:
    return topic("arrow-write", partitions=PARTITIONS)


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


def read(topic: str, settings: dict[str, str]) -> list[dict[str, object]]:
    """The committed records, by partition and offset."""
    committed = {**settings, "isolation.level": "read_committed"}
    with arrow.read(topic, committed, columns="partition,offset,key,value,headers") as stream:
        rows = pa.table(stream).to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


ROWS = {
    "key": [b"a", None, b"c"],
    "value": ["1", "2", None],
    "partition": [2, 0, 1],
    "headers": [[{"key": "h", "value": b"x"}], None, []],
    "offset": [7, 8, 9],
}


def of_pyarrow() -> pa.Table:
    kinds = {
        "key": pa.binary(),
        "value": pa.string(),
        "partition": pa.int32(),
        "headers": HEADERS,
        "offset": pa.int64(),
    }
    return pa.table(ROWS, schema=pa.schema(kinds.items()))


def of_polars() -> pl.DataFrame:
    return pl.DataFrame(ROWS)


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
@pytest.mark.parametrize("table", [of_pyarrow, of_polars])
def test_a_table_is_read_back_as_it_was_written(
    name: str, settings: dict[str, str], table: Callable[[], pa.Table], engine: str
) -> None:
    assert arrow.write(name, table(), settings, engine=engine) == 3
    assert read(name, settings) == [
        {"partition": 0, "offset": 0, "key": None, "value": b"2", "headers": None},
        {"partition": 1, "offset": 0, "key": b"c", "value": None, "headers": None},
        {"partition": 2, "offset": 0, "key": b"a", "value": b"1", "headers": [{"key": "h", "value": b"x"}]},
    ]


def test_streams_batches_and_frames_are_written(name: str, settings: dict[str, str], topic: Topic) -> None:
    copy = topic("arrow-copy", partitions=PARTITIONS)
    batch = pa.record_batch({"value": [str(n) for n in range(1000)]})
    assert arrow.write(name, batch, settings) == 1000
    assert arrow.write(name, pd.DataFrame({"value": ["1000"]}), settings) == 1
    assert arrow.write(name, pa.table({"value": pa.array([], pa.string())}), settings) == 0
    with arrow.read(name, settings, columns="key,value") as stream:
        assert arrow.write(copy, stream, settings) == 1001
    with arrow.read(copy, settings, columns="value string") as stream:
        assert sorted(map(int, pa.table(stream)["value"].to_pylist())) == list(range(1001))


def test_columns_that_hold_texts_in_another_way_are_written(name: str, settings: dict[str, str]) -> None:
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"])
    headers = pa.array([[("h", b"1"), ("i", None)], None, []], pa.map_(pa.string(), pa.binary()))
    assert arrow.write(name, pa.table({"key": texts, "value": runs, "headers": headers}), settings) == 3
    assert arrow.write(name, pl.DataFrame({"key": ["c"], "value": [None], "headers": [None]}), settings) == 1
    assert (
        arrow.write(name, pl.DataFrame({"value": pl.Series(["d"], dtype=pl.Enum(["d"])), "key": [None]}), settings) == 1
    )
    rows = sorted((row["key"] or b"", row["value"], row["headers"]) for row in read(name, settings))
    assert rows == [
        (b"", b"d", None),
        (b"a", b"x", [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]),
        (b"a", b"y", None),
        (b"b", b"x", None),
        (b"c", None, None),
    ]


def test_each_record_may_name_its_topic(name: str, settings: dict[str, str], topic: Topic) -> None:
    other = topic("arrow-other", partitions=1)
    assert arrow.write(None, pl.DataFrame({"topic": [name, other, other], "value": ["1", "2", "3"]}), settings) == 3
    assert (len(read(name, settings)), len(read(other, settings))) == (1, 2)


@pytest.mark.requires_native
def test_a_transaction_is_visible_whole_or_not_at_all(name: str, settings: dict[str, str]) -> None:
    transactional = {**settings, "transactional.id": f"{name}-loader"}

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["1"]})
        assert read(name, settings) == []
        raise ZeroDivisionError

    with pytest.raises(pa.ArrowInvalid, match="ZeroDivisionError"):
        arrow.write(
            name, pa.RecordBatchReader.from_batches(pa.schema({"value": pa.string()}), batches()), transactional
        )
    assert read(name, settings) == []
    assert arrow.write(name, pa.table({"value": ["2", "3"]}), transactional) == 2
    assert sorted(row["value"] for row in read(name, settings)) == [b"2", b"3"]  # type: ignore[type-var]
    assert arrow.write(name, pa.table({"value": pa.array([], pa.string())}), transactional) == 0


@pytest.mark.requires_native
def test_what_cannot_be_written_is_said(name: str, settings: dict[str, str]) -> None:
    table = pa.table({"value": ["1"]})
    with pytest.raises(InvalidConfigurationError, match="'value' not found among the columns text"):
        arrow.write(name, pa.table({"text": ["1"]}), settings)
    with pytest.raises(InvalidConfigurationError, match="value attribute unsupported type double"):
        arrow.write(name, pa.table({"value": [1.5]}), settings)
    with pytest.raises(InvalidConfigurationError, match="Column partition holds -1"):
        arrow.write(name, pa.table({"value": ["1"], "partition": [-1]}), settings)
    with pytest.raises(DeliveryError, match=f"{name}-99"):
        arrow.write(name, pa.table({"value": ["1"], "partition": [99]}), settings)
    with pytest.raises(OptionError, match=r"^Option topic"):
        arrow.write(None, table, settings)
    with pytest.raises(OptionError, match=r"^Option data"):
        arrow.write(name, [b"1"], settings)
    with pytest.raises(OptionError, match=r"^Option data got 'a Series without named columns'"):
        arrow.write(name, pl.Series("value", ["1"]), settings)
    with pytest.raises(OptionError, match=r"^Option engine"):
        arrow.write(name, table, {**settings, "transactional.id": name}, engine="librdkafka")
    with pytest.raises(OptionError, match=r"^Option acks"):
        arrow.write(name, table, {**settings, "transactional.id": name, "acks": "1"})
    with pytest.raises(OptionError, match="without the prefix"):
        arrow.write(name, table, {**settings, "kafka.acks": "all"})
    with pytest.raises(UnknownTopicError, match="arrow-none does not exist"):
        arrow.write("arrow-none", table, settings)
    assert read(name, settings) == []
