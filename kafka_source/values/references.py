"""An Avro schema and those that it refers to, all fetched, as one text: each named type where it is first used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


def inline_references(text: str, included: Mapping[str, str]) -> str:
    """Return a schema in which the types of other schemas are included.

    Args:
        text: The schema as JSON.
        included: The text of each schema to which it refers, directly or not, by the full name of its type.

    Raises:
        ValueError: A text is no JSON.
        RecursionError: A schema is nested too deeply.
    """
    types = {name: json.loads(schema) for name, schema in included.items()}
    return json.dumps(_Inliner(types).type_of(json.loads(text), ""))


class _Inliner:
    def __init__(self, types: Mapping[str, Any]) -> None:
        # What is defined is known from where it is to be included; what is written has its text already.
        self._types, self._defined, self._written = types, set[str](), set[str]()

    def type_of(self, node: Any, namespace: str) -> Any:
        """Return a type as it is used within a namespace."""
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return [self.type_of(one, namespace) for one in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if kind in _NAMED:
            name, own = str(node.get("name", "")), node.get("namespace")
            namespace = name.rpartition(".")[0] if "." in name else str(namespace if own is None else own)
            full = _full(name, namespace)
            if full in self._written:
                # Another schema that is included has it too.
                return full
            self._defined.add(full)
            self._written.add(full)
        inner = {key: self.type_of(node[key], namespace) for key in ("items", "values") if key in node}
        if kind in ("record", "error") and isinstance(node.get("fields"), list):
            inner["fields"] = [
                {**field, "type": self.type_of(field["type"], namespace)}
                if isinstance(field, dict) and "type" in field
                else field
                for field in node["fields"]
            ]
        if kind not in _NAMED and kind is not None:
            inner["type"] = self.type_of(kind, namespace)
        return {**node, **inner}

    def _named(self, name: str, namespace: str) -> Any:
        for full in (_full(name, namespace), name):
            if full in self._defined:
                return name
            if full in self._types:
                self._defined.add(full)
                found = self._types[full]
                if isinstance(found, dict) and "." not in str(found.get("name", ".")) and "namespace" not in found:
                    # It would get the namespace of the type in which it is included.
                    found = {**found, "namespace": ""}
                return self.type_of(found, "")
        return name


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
