"""A function over record batches: what it may return, how it ends, and what its errors say."""

import itertools
import mmap
import os
import pickle
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.arrow_function import ArrowFunction, Mapping
from kafka_source.errors import DataLossError, InvalidConfigurationError

Batches = Iterator[pa.RecordBatch]
SECRET = b"4929-1234"
LENGTHS = pa.schema([pa.field("size", pa.int32())])
LOST = DataLossError(topic="orders", partition=1, planned=5)


def read(*sizes: int) -> Generator[pa.RecordBatch, None, None]:
    """Batches of so many records of a partition, with their places."""
    offset = 0
    for size in sizes:
        columns = [[SECRET] * size, ["orders"] * size, [1] * size, list(range(offset, offset + size))]
        types = [pa.binary(), pa.string(), pa.int32(), pa.int64()]
        names = ["value", "topic", "partition", "offset"]
        yield pa.record_batch([pa.array(one, kind) for one, kind in zip(columns, types, strict=True)], names)
        offset += size


def mapping(
    function: ArrowFunction, schema: pa.Schema | None = LENGTHS, *, rows: int = 1000, size: int = 1 << 20
) -> Mapping:
    return Mapping(lambda: function, ("value",), schema, batch_rows=rows, batch_bytes=size)


def mapped(function: ArrowFunction, schema: pa.Schema | None = LENGTHS, **bounds: int) -> list[pa.RecordBatch]:
    return list(mapping(function, schema, **bounds).rows(read(2, 3)))


def lengths(batches: Batches) -> Batches:
    for batch in batches:
        yield pa.record_batch({"size": pc.binary_length(batch["value"])})


def constantly(*returned: object) -> ArrowFunction:
    def function(batches: Batches) -> Iterable[object]:
        return returned

    return function


def problem(function: ArrowFunction, schema: pa.Schema = LENGTHS) -> str:
    with pytest.raises(InvalidConfigurationError) as caught:
        mapped(function, schema)
    assert SECRET.decode() not in str(caught.value)
    return str(caught.value)


def test_it_is_given_its_columns_and_makes_the_rows() -> None:
    names = []

    def function(batches: Batches) -> Batches:
        return lengths(names.append(batch.schema.names) or batch for batch in batches)

    assert pa.Table.from_batches(mapped(function))["size"].to_pylist() == [9] * 5
    assert names == [["value"]] * 2


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda batches: None, "NoneType, and not an iterator of pyarrow.RecordBatch"),
        (constantly(None), "an iterator of NoneType, and not of pyarrow.RecordBatch"),
        (constantly(pa.table({"size": [1]})), "an iterator of pyarrow.Table, and not of pyarrow.RecordBatch"),
        (constantly(pa.record_batch({"size": [1]})), "the column size as int64, but the schema has int32"),
        (constantly(pa.record_batch({"size": []})), "the column size as null, but the schema has int32"),
        (constantly(pa.record_batch({"n": [1], "m": [1]})), "the columns n, m, but the schema has size, in this order"),
    ],
)
def test_what_is_no_rows_of_the_schema_is_refused(function: ArrowFunction, told: str) -> None:
    assert problem(function) == f"The function of the read has returned {told}."


def test_an_error_has_the_place_and_the_users_traceback() -> None:
    def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows == 3:
            raise ValueError("no such key")
        return next(lengths(iter([batch])))

    told = problem(lambda batches: map(decode, batches))
    assert told.startswith(
        "The function of the read has failed with ValueError; its last batch had the offsets "
        "orders-1 [2, 5). The traceback:\nTraceback (most recent call last):\n"
    )
    assert told.endswith("ValueError: no such key\n")
    assert told.count("File ") == 1


def test_system_exit_is_an_error_and_so_is_one_before_the_first_record() -> None:
    def leave(batches: Batches) -> Batches:
        raise SystemExit(3)

    assert "failed with SystemExit; before the first record. " in problem(leave)


@pytest.mark.parametrize("again", [False, True])
def test_what_reading_raises_is_not_hidden(again: bool) -> None:
    def lossy() -> Batches:
        yield from read(2)
        raise LOST

    def forgiving(batches: Batches) -> Batches:
        try:
            yield from lengths(batches)
        except DataLossError:
            yield from (lengths(batches) if again else ())

    with pytest.raises(DataLossError) as caught:
        list(mapping(forgiving).rows(lossy()))
    assert caught.value is LOST


def closes(ended: list[str], function: ArrowFunction) -> ArrowFunction:
    def closing(batches: Batches) -> Batches:
        try:
            yield from function(batches)
        finally:
            ended.append("ended")

    return closing


def test_it_is_closed_at_its_end_after_an_error_and_when_nobody_asks_for_more() -> None:
    ended: list[str] = []
    mapped(closes(ended, lengths))
    assert ended == ["ended"]
    problem(closes(ended, constantly(1)))
    assert ended == ["ended"] * 2
    records = read(2, 3)
    rows = mapping(closes(ended, lengths)).rows(records)
    next(rows)
    rows.close()
    assert ended == ["ended"] * 3
    # The reading has ended, too.
    assert list(records) == []


def test_an_error_of_its_end_is_told() -> None:
    def function(batches: Batches) -> Batches:
        try:
            yield from lengths(batches)
        finally:
            raise OSError("cannot close")

    rows = mapping(function).rows(read(2, 3))
    next(rows)
    with pytest.raises(InvalidConfigurationError, match=r"failed with OSError; .* \[0, 2\)"):
        rows.close()


def test_it_may_end_early_keep_every_batch_and_print(capfd: pytest.CaptureFixture[str]) -> None:
    def first(batches: Batches) -> Batches:
        print("hello")
        return itertools.islice(lengths(batches), 1)

    assert [batch.num_rows for batch in mapped(first)] == [2]
    assert [batch.num_rows for batch in mapped(lambda batches: lengths(iter(list(batches))))] == [2, 3]


def test_it_may_end_early_while_a_thread_of_its_own_reads() -> None:
    reads, ended = threading.Event(), list[int]()

    def slow() -> Batches:
        for number, batch in enumerate(read(*[1] * 1000)):
            if number:
                reads.set()
                time.sleep(0.01)
            yield batch

    def ahead(batches: Batches) -> Batches:
        thread = threading.Thread(target=lambda: ended.append(sum(batch.num_rows for batch in batches)))
        yield next(lengths(batches))
        thread.start()
        reads.wait(10)
        threads.append(thread)

    threads = list[threading.Thread]()
    records = slow()
    assert [batch.num_rows for batch in mapping(ahead).rows(records)] == [1]
    assert list(records) == []
    threads[0].join(10)
    # The thread gets the batch of the read under way, and soon the end.
    assert 0 < ended[0] < 999


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(2, 4))
def test_its_threads_share_the_batches(sizes: list[int], count: int) -> None:
    def slow() -> Batches:
        for batch in read(*sizes):
            time.sleep(0.0001)
            yield batch

    def shared(batches: Batches) -> Batches:
        with ThreadPoolExecutor(count) as threads:
            for own in threads.map(lambda _: list(lengths(batches)), range(count)):
                yield from own

    found = [batch.num_rows for batch in mapping(shared).rows(slow())]
    assert sorted(found) == sorted(size for size in sizes if size)


def test_a_forked_copy_writes_nothing() -> None:
    children = []

    def function(batches: Batches) -> Batches:
        for batch in lengths(batches):
            children.append(os.fork())
            yield batch

    assert [batch.num_rows for batch in mapped(function)] == [2, 3]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [1, 1]


def test_a_batch_of_4_gb_leaves_in_parts() -> None:
    count, each = 4096, 1 << 20
    # Zeros that take no memory until they are written.
    values = pa.py_buffer(mmap.mmap(-1, count * each, prot=mmap.PROT_READ))
    offsets = pa.array(range(0, (count + 1) * each, each), pa.int64()).buffers()[1]
    large = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, offsets, values])
    batch = pa.record_batch({"value": large})
    found = mapping(constantly(batch), pa.schema([("value", pa.binary())]), size=2 << 20).rows(read(1))
    sizes = [(part.num_rows, part.nbytes <= 2 << 20) for part in found]
    assert set(sizes) == {(1, True)}
    assert len(sizes) == count


def test_a_value_that_spark_cannot_take_is_told() -> None:
    size = (1 << 31) + 1
    values = pa.py_buffer(mmap.mmap(-1, size, prot=mmap.PROT_READ))
    offsets = pa.array([0, size], pa.int64()).buffers()[1]
    large = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, offsets, values])
    told = problem(constantly(pa.record_batch({"value": large})), pa.schema([("value", pa.binary())]))
    assert told.endswith("a value of the column value that is too large for binary.")


@given(st.lists(st.binary(max_size=300), max_size=40), st.integers(1, 20), st.integers(1, 1000))
def test_parts_have_all_rows_in_order_within_the_bounds(values: list[bytes], rows: int, size: int) -> None:
    schema = pa.schema([("value", pa.binary())])
    batch = pa.record_batch([pa.array(values, pa.binary())], schema=schema)
    parts = list(mapping(constantly(batch), schema, rows=rows, size=size).rows(read(1)))
    assert [value for part in parts for value in part["value"].to_pylist()] == values
    assert all(part.num_rows == 1 or (1 < part.num_rows <= rows and part.nbytes <= size) for part in parts)


ITEM = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("tags", pa.list_(pa.string()))])
NESTED = pa.schema(
    [
        pa.field("items", pa.list_(pa.field("element", ITEM, nullable=False)), nullable=False),
        pa.field("by_name", pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False))),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def nested(*, name: str = "a", number: int | None = 1, blob: bytes | None = b"x") -> pa.RecordBatch:
    """A row as pyarrow makes it: large types, another zone, and everything may be null."""
    return pa.record_batch(
        [
            pa.array(
                [[], [{"id": number, "tags": [name, None]}]],
                pa.list_(pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.large_string()))])),
            ),
            pa.array([None, [(name, blob)]], pa.map_(pa.string(), pa.large_binary())),
            pa.array([0, None], pa.timestamp("us", "Asia/Tokyo")),
        ],
        NESTED.names,
    )


def test_nested_columns_get_the_types_of_the_schema() -> None:
    # The first row is cut off, so that positions within the arrays are not those of the rows.
    (batch,) = mapped(constantly(nested().slice(1)), NESTED)
    assert batch.schema.equals(NESTED)
    batch.validate(full=True)
    assert batch.to_pylist() == [{"items": [{"id": 1, "tags": ["a", None]}], "by_name": [("a", b"x")], "at": None}]


def test_parts_of_nested_columns_are_what_spark_reads_of_them() -> None:
    kind = pa.map_(pa.string(), pa.large_string())
    batch = pa.record_batch({"by_name": pa.array([[("a", "x"), ("b", None)], [], None, [("c", "y")], []], kind)})
    schema = pa.schema([("by_name", pa.map_(pa.string(), pa.string()))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for part in mapping(constantly(batch), schema, rows=1).rows(read(1)):
            stream.write_batch(part)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(("batch", "column"), [(nested(number=None), "items"), (nested(blob=None), "by_name")])
def test_a_null_where_the_schema_has_none_is_refused(batch: pa.RecordBatch, column: str) -> None:
    text = f"a null in the column {column} or a part of it, where the schema has NOT NULL."
    assert problem(constantly(batch), NESTED).endswith(text)
    assert len(mapped(constantly(batch.slice(0, 1)), NESTED)) == 1


def test_a_mapping_shows_no_function_in_its_repr() -> None:
    made = Mapping(partial_of_secret(), ("value",), LENGTHS, batch_rows=1, batch_bytes=1)
    assert "hunter2" not in repr(made)
    assert pickle.loads(pickle.dumps(made.columns)) == ("value",)


def partial_of_secret() -> Callable[[], ArrowFunction]:
    class Opener:
        def __repr__(self) -> str:
            return "hunter2"

        def __call__(self) -> ArrowFunction:
            return lengths

    return Opener()
