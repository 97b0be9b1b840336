"""The fingerprint of an Avro schema: CRC-64-AVRO of its Parsing Canonical Form, by Avro's specification."""

import json
from collections.abc import Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_EMPTY = 0xC15D213AA4D7A795


def fingerprint(schema: str) -> int:
    """Return the fingerprint of a valid schema as an unsigned number of 64 bits."""
    crc = _EMPTY
    for byte in canonical_form(schema).encode():
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc


def canonical_form(schema: str) -> str:
    """Return a schema without the parts that readers of its data do not need."""
    return json.dumps(_stripped(json.loads(schema), ""), ensure_ascii=False, separators=(",", ":"))


def _stripped(node: Any, namespace: str) -> object:
    """Return a type within a namespace, with its attributes in the specification's order."""
    if isinstance(node, str):
        return node if node in _PRIMITIVES else _full(node, namespace)
    if isinstance(node, list):
        return [_stripped(branch, namespace) for branch in node]
    kind = node["type"]
    if kind == "array":
        return {"type": kind, "items": _stripped(node["items"], namespace)}
    if kind == "map":
        return {"type": kind, "values": _stripped(node["values"], namespace)}
    if kind not in _NAMED:
        return _stripped(kind, namespace)
    name = _full(node["name"], node.get("namespace", namespace))
    inside = name.rpartition(".")[0]
    return {"name": name, "type": kind, **_body(node, inside)}


def _body(node: Mapping[str, Any], namespace: str) -> dict[str, object]:
    if node["type"] == "enum":
        return {"symbols": node["symbols"]}
    if node["type"] == "fixed":
        return {"size": int(node["size"])}
    return {"fields": [{"name": one["name"], "type": _stripped(one["type"], namespace)} for one in node["fields"]]}


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _entry(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (_EMPTY if crc & 1 else 0)
    return crc


_TABLE = tuple(_entry(byte) for byte in range(256))
