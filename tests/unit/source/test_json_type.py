"""The type of JSON values as `value.schema` says it, compared with the type that Spark's own parser finds."""

import pytest
from pyspark.sql.types import StructType

from kafka_source.errors import OptionError
from kafka_source.json_type import json_column_type
from kafka_source.spark_types import spark_type


def shown(text):
    return spark_type(json_column_type(text)).simpleString()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id bigint, amount DOUBLE", "struct<id:bigint,amount:double>"),
        ("id: long NOT NULL COMMENT 'the one, and only', at timestamp", "struct<id:bigint,at:timestamp>"),
        ("`order id` int, `a``b` string", "struct<order id:int,a`b:string>"),
        (
            "struct<a: array<struct<b: map<string, decimal(9, 2)>>>>",
            "struct<a:array<struct<b:map<string,decimal(9,2)>>>>",
        ),
        (
            "date date, decimal decimal, map map<string,binary>",
            "struct<date:date,decimal:decimal(10,0),map:map<string,binary>>",
        ),
        ("array<timestamp_ntz>", "array<timestamp_ntz>"),
        ("größe float", "struct<größe:float>"),
    ],
)
def test_a_text_is_the_type_that_spark_finds(text, kind):
    assert shown(text) == kind


def test_what_a_schema_of_spark_prints_as_json_is_taken():
    schema = StructType().add("id", "long", nullable=False).add("tags", "string")
    assert shown(schema.json()) == "struct<id:bigint,tags:string>"
    assert json_column_type(schema.json()).field("id").nullable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the name of a field is expected before the end"),
        ("id", "a type is expected before the end"),
        ("id bigint,", "the name of a field is expected"),
        ("id bigint amount double", "amount is not expected"),
        ("id tinyint", "tinyint is none of boolean"),
        ("id map<int, string>", "the keys of a map are strings"),
        ("id bigint, id int", "the field id twice"),
        ("id decimal(39, 2)", "1 to 38 digits"),
        ("id array<bigint", "> is expected before the end"),
        ("id " + "array<" * 100_000, "nested more than"),
        ('{"type": "record"}', "it says nothing about the type of a value"),
        ('{"type": "struct"}', "no schema as JSON"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "short", "nullable": true}]}', "read as smallint"),
    ],
)
def test_what_is_no_type_of_json_values_is_refused(text, said):
    with pytest.raises(OptionError, match=r"value\.schema") as failed:
        json_column_type(text)
    assert said in str(failed.value)
