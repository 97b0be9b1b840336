"""Several types of records in one topic: one schema for a column with several types, and the check of record names.

Confluent's serializers write such topics with a subject for each type (`RecordNameStrategy`,
`TopicRecordNameStrategy`), or with one schema that is a union.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)


def union_of(schemas: Mapping[str, str]) -> str:
    """Return the union of Avro records as one schema, in which each record has its own types.

    Args:
        schemas: The schema of each record as JSON, by its subject.

    Raises:
        ValueError: A schema is no record, or two schemas define the same record.
    """
    types: dict[str, Any] = {}
    for subject, text in schemas.items():
        schema = _parsed(text)
        if not _is_record(schema):
            raise ValueError(f"the schema of subject {subject} is no record")
        full = _full(schema, schema["name"])
        if full in types:
            raise ValueError(f"the schemas of subject {subject} and of another subject both define record {full}")
        types[full] = schema
    return json.dumps(list(types.values()))


def other_record(writer: str, reader: str) -> str | None:
    """Return why a writer's record is not the column's record; None: they are the same, or a schema has no record.

    Avro's rules do not compare names of records, so a record of another type would be read as the column's record if
    all fields have defaults. Here names are compared without namespaces, and with the reader's aliases.

    Args:
        writer: The Avro schema of a value, as JSON.
        reader: The Avro schema of the column.
    """
    written, read = _parsed(writer), _parsed(reader)
    records = [one for one in (read if isinstance(read, list) else [read]) if _is_record(one)]
    if not _is_record(written) or not records:
        return None
    known = {_simple(name): None for one in records for name in (one["name"], *one.get("aliases", ()))}
    name = _simple(written["name"])
    if name not in known:
        return f"the record is a {name}, and the column {' or '.join(known)}"
    full = _full(written, written["name"])
    names = [_full(one, other) for one in records for other in (one["name"], *one.get("aliases", ()))]
    if full not in names:
        log.warning("Records %s are read as %s, which has another namespace.", full, " or ".join(names))
    return None


def record_of(text: str) -> dict[str, Any] | None:
    """Return the record of an Avro schema, which may be nullable; None: no record, or several.

    The column of a union of several records has a field for each record. The schema has no name or default for such a
    field.
    """
    schema = _parsed(text)
    if isinstance(schema, list):
        members = [one for one in map(_unwrapped, schema) if one not in ("null", {"type": "null"})]
        schema = members[0] if len(members) == 1 else None
    return schema if _is_record(schema) else None


def _parsed(text: str) -> Any:
    try:
        return _unwrapped(json.loads(text))
    except (ValueError, RecursionError):
        # A caller that needs the schema reports the error.
        return None


def _unwrapped(schema: Any) -> Any:
    while isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        schema = schema["type"]
    return schema


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record" and "name" in schema


def _full(record: dict[str, Any], name: object) -> str:
    namespace = str(record["name"]).rpartition(".")[0] or str(record.get("namespace") or "")
    return f"{namespace}.{name}" if namespace and "." not in str(name) else str(name)


def _simple(name: object) -> str:
    return str(name).rpartition(".")[2]
