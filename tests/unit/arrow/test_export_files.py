"""What an export writes: forms of files, files that are complete or not there, and the folder that is continued."""

import gc
import io
import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.arrow_schema import arrow_schema
from kafkagroup.arrow.complete_files import complete_file, locked
from kafkagroup.arrow.export_folder import DOCUMENT, Begun, Parts, positions_of
from kafkagroup.arrow.file_formats import FileFormat, batch_writer
from kafkagroup.arrow.settings import columns_named

BEGUN = Begun("orders", "the-id", "the-cluster", "jsonl", "offset", "earliest", {0: 0, 1: 100})
COLUMNS = columns_named("key string, value, offset, timestamp, headers")
ROWS = [
    {
        "key": 'a "key", with\nall',
        "value": b"\x00\xff",
        "offset": 7,
        "timestamp": datetime(2026, 1, 31, 12, 0, 0, 5000, timezone.utc),
        "headers": [{"key": "trace", "value": b"id"}, {"key": "none", "value": None}],
    },
    {"key": "", "value": b"", "offset": 8, "timestamp": datetime(1970, 1, 1, tzinfo=timezone.utc), "headers": None},
    {"key": None, "value": None, "offset": 9, "timestamp": datetime(1970, 1, 1, tzinfo=timezone.utc), "headers": []},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(COLUMNS))
TEXT = [
    (
        'a "key", with\nall',
        "AP8=",
        7,
        "2026-01-31T12:00:00.005Z",
        [{"key": "trace", "value": "aWQ="}, {"key": "none", "value": None}],
    ),
    ("", "", 8, "1970-01-01T00:00:00.000Z", None),
    (None, None, 9, "1970-01-01T00:00:00.000Z", []),
]


def written(form: FileFormat, *, pipe: bool = False) -> bytes:
    file = io.BytesIO()
    writer = batch_writer(form, BATCH.schema, file, pipe=pipe)
    writer.write(BATCH)
    writer.write(BATCH)
    writer.finish()
    return file.getvalue()


def test_parquet_and_arrow_have_the_same_rows_as_the_stream() -> None:
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(pa.BufferReader(written(FileFormat.PARQUET)))
    assert parquet.read().to_pylist() == 2 * ROWS
    assert parquet.num_row_groups == 1, "batches are small, row groups are not"
    assert pa.ipc.open_file(written(FileFormat.ARROW)).read_all().to_pylist() == 2 * ROWS
    assert pa.ipc.open_stream(written(FileFormat.ARROW, pipe=True)).read_all().to_pylist() == 2 * ROWS


@pytest.mark.parametrize("form", list(FileFormat))
def test_a_file_that_is_given_up_gets_nothing_more(tmp_path: Path, form: FileFormat) -> None:
    file = (tmp_path / "half").open("wb")
    writer = batch_writer(form, BATCH.schema, file)
    writer.write(BATCH)
    writer.give_up()
    file.close()
    size = (tmp_path / "half").stat().st_size
    # An error of a finalizer fails the test: pytest collects it.
    del writer
    gc.collect()
    assert (tmp_path / "half").stat().st_size == size


def test_json_lines_have_text_where_it_was_asked_for_and_else_base64() -> None:
    lines = [json.loads(line) for line in written(FileFormat.JSONL).splitlines()]
    assert [tuple(line.values()) for line in lines] == 2 * TEXT
    assert list(lines[0]) == BATCH.schema.names


def test_csv_tells_nothing_from_an_empty_text_and_has_headers_as_json(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(written(FileFormat.CSV))
    assert path.read_text().count("\n,,9,") == 2
    rows = duckdb.sql(f"select * from read_csv('{path}', header=true, all_varchar=true, allow_quoted_nulls=false)")
    assert rows is not None
    expected = [
        (key, value, str(offset), when, None if headers is None else json.dumps(headers))
        for key, value, offset, when, headers in TEXT
    ]
    assert rows.fetchall() == 2 * expected


def test_a_time_beyond_the_calendar_is_its_number() -> None:
    micros = pa.array([1_769_860_800_000_000_000, 1_769_860_800_000_000, None], pa.timestamp("us", "UTC"))
    batch, file = pa.record_batch({"timestamp": micros}), io.BytesIO()
    batch_writer(FileFormat.JSONL, batch.schema, file).write(batch)
    shown = [json.loads(line)["timestamp"] for line in file.getvalue().splitlines()]
    assert shown == ["1769860800000000", "2026-01-31T12:00:00.000Z", None]


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([[1, 2], None, []], pa.list_(pa.int32()), [[1, 2], None, []]),
        ([[{"a": b"\xff"}]], pa.list_(pa.struct({"a": pa.binary()})), [[{"a": "/w=="}]]),
        ([[b"ab"]], pa.large_list(pa.large_binary()), [["YWI="]]),
        ([b"ab", None], pa.binary(2), ["YWI=", None]),
        ([[Decimal("1.50")]], pa.list_(pa.decimal128(5, 2)), [["1.50"]]),
        ([float("nan"), float("inf"), 0.5], pa.float64(), ["NaN", "Infinity", 0.5]),
        ([{"a": [float("-inf"), 1.0], "b": b"\xff"}], None, [{"a": ["-Infinity", 1.0], "b": "/w=="}]),
        ([[("a", float("nan"))]], pa.map_(pa.string(), pa.float32()), [{"a": "NaN"}]),
        ([[0, 1 << 60]], pa.list_(pa.timestamp("us", "UTC")), [["1970-01-01T00:00:00+00:00", 1 << 60]]),
    ],
    ids=str,
)
def test_decoded_values_are_json(values: list[object], kind: pa.DataType | None, shown: list[object]) -> None:
    batch, file = pa.record_batch({"value": pa.array(values, kind)}), io.BytesIO()
    batch_writer(FileFormat.JSONL, batch.schema, file).write(batch)

    def refuse(word: str) -> None:
        raise AssertionError(f"JSON has no {word}")

    lines = file.getvalue().splitlines()
    assert [json.loads(line, parse_constant=refuse)["value"] for line in lines] == shown


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of another user")
    (tmp_path / ".out.csv.partial").symlink_to(other)
    with (
        pytest.raises(InvalidConfigurationError, match="it is a link"),
        complete_file(tmp_path / "out.csv", overwrite=True),
    ):
        pass
    assert other.read_text() == "of another user"


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    with pytest.raises(KeyboardInterrupt), complete_file(path, overwrite=False) as file:
        file.write(b"half")
        assert not path.exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    # A process that was killed has left more than the next one writes.
    (tmp_path / ".orders.csv.partial").write_bytes(b"what is left of another one")
    with complete_file(path, overwrite=False) as file:
        file.write(b"whole")
        with pytest.raises(InvalidConfigurationError, match="Another process"), complete_file(path, overwrite=True):
            pass
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InvalidConfigurationError, match="exists"), complete_file(path, overwrite=False):
        pass
    with complete_file(path, overwrite=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    with pytest.raises(InvalidConfigurationError, match="exists"), complete_file(path, overwrite=False) as file:
        file.write(b"ours")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="No such file or directory"), locked(tmp_path / "a" / "b"):
        pass


def batch(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array(range(start, end), pa.int64())})


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), max_size=8))
def test_a_folder_continues_where_its_last_part_ends(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, int, bool]]
) -> None:
    """Of records, missing offsets behind them, and whether the process dies instead of committing the part."""
    folder = tmp_path_factory.mktemp("parts")
    for records, missing, dies in pieces:
        start = positions_of(folder, BEGUN)[1]
        if dies:
            (folder / ".part.partial").write_bytes(b"half of a part")
        else:
            with Parts(folder, BEGUN, batch(0, 0).schema, 1, start) as parts:
                parts.write(batch(start, start + records))
                parts.commit(start + records + missing)
            assert positions_of(folder, BEGUN)[1] == start + records + missing
        assert positions_of(folder, BEGUN)[0] == 0
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    offsets = [json.loads(line)["offset"] for line in lines]
    assert len(set(offsets)) == len(offsets) == sum(records for records, _, dies in pieces if not dies)


def test_ctrl_c_while_a_part_is_opened_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, _: str) -> None:
        path.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), Parts(tmp_path, BEGUN, batch(0, 0).schema, 1, 0) as parts:
        parts.write(batch(0, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "00001-00000000000000000090-00000000000000000110.jsonl",
        "00001-00000000000000000101-00000000000000000110.jsonl",
        "00002-00000000000000000001-00000000000000000110.jsonl",
    ],
)
def test_parts_that_do_not_follow_each_other_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InvalidConfigurationError, match=f"{name} begins at offset"):
        positions_of(tmp_path, BEGUN)


def test_other_files_in_the_folder_do_not_count(tmp_path: Path) -> None:
    for name in ("notes.jsonl", "00001-00000000000000000100-00000000000000000110.csv", DOCUMENT, ".part.partial"):
        (tmp_path / name).touch()
    assert positions_of(tmp_path, BEGUN) == {0: 0, 1: 100}


def test_the_document_of_a_folder() -> None:
    assert Begun.of_json(BEGUN.to_json(), Path("folder")) == BEGUN
    with pytest.raises(InvalidConfigurationError, match=r"folder/_export.json has version 2"):
        Begun.of_json(BEGUN.to_json().replace(b'"version": 1', b'"version": 2'), Path("folder"))
    with pytest.raises(InvalidConfigurationError, match=r"is damaged"):
        Begun.of_json(b"[]", Path("folder"))
