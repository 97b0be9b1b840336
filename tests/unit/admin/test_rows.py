"""Rows as Arrow, pandas and JSON: the same names and values in all, also of no rows."""

import pickle

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator, ValidationError

from assignors import TopicPartition
from kafkagroup.admin import GroupSummary, MemberDescription, PartitionLag, Rows, UserData
from kafkagroup.admin.rows import arrow_schema, columns, json_schema

LAG = Rows(
    PartitionLag, [PartitionLag("orders", 0, 7, 10, "app-0"), PartitionLag("orders", 1, None, 10, None, start=4)]
)
MEMBER = MemberDescription(
    "m-1", None, "app", "/10.0.0.1", (TopicPartition("orders", 0),), ("orders",), user_data=UserData(12, weight=2)
)


def test_columns_are_fields_and_then_figures_that_follow_from_them() -> None:
    assert list(columns(PartitionLag)) == ["topic", "partition", "committed", "end", "member", "start", "lag", "behind"]


def test_a_partition_without_a_committed_offset_is_behind_by_all_its_offsets() -> None:
    assert [(row.lag, row.behind) for row in LAG] == [(3, 3), (None, 6)]


def test_rows_are_a_sequence_that_survives_pickling() -> None:
    assert len(LAG) == 2
    assert LAG[0].topic == "orders"
    copy = pickle.loads(pickle.dumps(LAG))
    assert (copy, copy.kind) == (LAG, PartitionLag)


def test_arrow() -> None:
    table = LAG.to_arrow()
    assert table.column("lag").to_pylist() == [3, None]
    assert table.schema.field("committed").type == pa.int64()
    assert Rows(PartitionLag).to_arrow().schema == table.schema


def test_pandas_keeps_whole_numbers_that_are_missing_in_some_rows() -> None:
    frame = LAG.to_pandas()
    assert str(frame["lag"].dtype) == "Int64"
    assert frame["lag"].sum() == 3
    assert list(Rows(PartitionLag).to_pandas().columns) == list(columns(PartitionLag))


def test_nested_values_are_lists_and_structs() -> None:
    (row,) = Rows(MemberDescription, [MEMBER]).to_arrow().to_pylist()
    assert row["partitions"] == [{"topic": "orders", "partition": 0}]
    assert row["user_data"]["weight"] == 2
    assert row["assigned_data"] is None
    assert arrow_schema(MemberDescription).field("topics").type == pa.list_(pa.string())


@pytest.mark.parametrize("rows", [LAG, Rows(MemberDescription, [MEMBER]), Rows(GroupSummary, [])], ids=lambda r: r.kind)
def test_the_json_schema_fits_its_rows_and_nothing_else(rows: Rows[object]) -> None:
    validator = Draft202012Validator(json_schema(rows.kind))
    Draft202012Validator.check_schema(validator.schema)
    for record in rows.records():
        validator.validate(record)
        with pytest.raises(ValidationError):
            validator.validate({**record, "another": 1})
    with pytest.raises(ValidationError):
        validator.validate({})
