"""Avro values as producers write them, made by fastavro."""

import copy
import io
import struct
from collections.abc import Mapping
from typing import Any

import fastavro

Schema = dict[str, Any]


def datum(schema: Schema | str | list[Schema], value: object) -> bytes:
    """The bytes of a value, without framing."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def framed(schema_id: int, schema: Schema | str | list[Schema], value: object) -> bytes:
    """The bytes of a value with Confluent's framing."""
    return struct.pack(">bI", 0, schema_id) + datum(schema, value)


def record(name: str, *fields: Mapping[str, object]) -> Schema:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": list(fields)}
