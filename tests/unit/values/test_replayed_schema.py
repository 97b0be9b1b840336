"""A batch that is replayed after a restart, when its column has a newer schema."""

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from kafka_source.errors import InvalidConfigurationError
from kafka_source.values.reader_schema import ReaderSchema
from kafka_source.values.replayed_schema import current_column

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}

pytestmark = pytest.mark.requires_native


def _record(*fields: object) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


@pytest.mark.parametrize("wrapped", [lambda it: it, lambda it: ["null", it], lambda it: {"type": it}])
def test_a_field_that_has_come_since_has_its_default(wrapped: Callable[[object], object]) -> None:
    then, now = (ReaderSchema(json.dumps(wrapped(_record(*fields))), n) for n, fields in ((1, [ID]), (2, [ID, NOTE])))
    made = current_column(then, now, now.column_type())(pa.array([{"id": 7}, None], then.column_type()))
    assert made.to_pylist() == [{"id": 7, "note": None}, None]


def test_a_new_field_may_have_a_type_that_another_field_defines() -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    home, work = {"name": "home", "type": address}, {"name": "work", "type": ["null", "shop.Address"], "default": None}
    then, now = (ReaderSchema(json.dumps(_record(*fields)), n) for n, fields in ((1, [home]), (2, [home, work])))
    made = current_column(then, now, now.column_type())(pa.array([{"home": {"city": "Bern"}}], then.column_type()))
    assert made.to_pylist() == [{"home": {"city": "Bern"}, "work": None}]


def test_a_new_field_may_have_the_type_of_its_record() -> None:
    a, following = {"name": "a", "type": "int"}, {"name": "next", "type": ["null", "Order"], "default": None}
    then, now = (
        ReaderSchema(json.dumps(_record(*fields)), n, recursive_depth=2)
        for n, fields in ((1, [a]), (2, [a, following]))
    )
    made = current_column(then, now, now.column_type())(pa.array([{"a": 1}], then.column_type()))
    assert made.to_pylist() == [{"a": 1, "next": None}]


def test_a_union_of_records_that_has_changed_says_how_to_go_on() -> None:
    other = {"type": "record", "name": "Refund", "fields": [ID]}
    then, now = (ReaderSchema(json.dumps([_record(*fields), other]), n) for n, fields in ((1, [ID]), (2, [ID, NOTE])))
    with pytest.raises(InvalidConfigurationError, match=r"value\.schema\.id=1 and Trigger\.AvailableNow"):
        current_column(then, now, now.column_type())
