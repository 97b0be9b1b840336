"""The schema is Spark's, and our Arrow types are those that Spark expects for it."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kafka_source.errors import OptionError
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import columns_of, schema_for, source_schema


def test_the_columns_are_those_of_the_built_in_source():
    assert source_schema(headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    given = {"Key.Format": "string"}
    assert schema_for(given).simpleString().startswith("struct<key:string,value:binary,topic:string,")
    assert source_schema(headers=True)["headers"].dataType.simpleString() == ("array<struct<key:string,value:binary>>")


@pytest.mark.parametrize(
    "schema",
    [
        source_schema(headers=True),
        source_schema(headers=False),
        StructType([StructField("value", BinaryType(), nullable=False)]),
        StructType([StructField("offset", LongType()), StructField("value", StringType())]),
    ],
)
def test_arrow_types_are_those_that_spark_expects(schema):
    assert arrow_schema(columns_of(schema)).equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("field", [StructField("payload", BinaryType()), StructField("offset", StringType())])
def test_columns_that_a_record_does_not_have_are_refused(field):
    with pytest.raises(OptionError, match=field.name):
        columns_of(StructType([field]))
