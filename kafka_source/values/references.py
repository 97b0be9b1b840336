"""An Avro schema and its references as one text, in which each named type is defined where it is first used."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


def inline_references(text: str, included: Iterable[str]) -> str:
    """Return a schema in which the types of other schemas are included.

    Args:
        text: The schema as JSON.
        included: The text of each schema to which the schema refers, directly or indirectly. As in Java, a reference
            provides all types that it defines; of several types with the same name, the first counts.

    Raises:
        ValueError: A text is no JSON.
        RecursionError: A schema is nested too deeply.
    """
    types: dict[str, Any] = {}
    for schema in included:
        for name, definition in _definitions(json.loads(schema), ""):
            types.setdefault(name, definition)
    return json.dumps(_Inliner(types).type_of(json.loads(text), ""))


def _definitions(node: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """Yield the types that a schema defines within a namespace, with their full names and namespaces."""
    if isinstance(node, list):
        for one in node:
            yield from _definitions(one, namespace)
    if not isinstance(node, dict):
        return
    if node.get("type") in _NAMED:
        full, namespace = _names_of(node, namespace)
        yield full, {"namespace": namespace, **node}
    inner = [node[key] for key in ("type", "items", "values") if key in node]
    fields = node.get("fields")
    for one in [*inner, *(fields if isinstance(fields, list) else [])]:
        yield from _definitions(one, namespace)


class _Inliner:
    def __init__(self, types: Mapping[str, Any]) -> None:
        # A type is written in full at its first use, and by its name later.
        self._types, self._defined, self._written = types, set[str](), set[str]()

    def type_of(self, node: Any, namespace: str) -> Any:
        """Return a type within a namespace, with the definition of each named type at its first use."""
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return [self.type_of(one, namespace) for one in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if kind in _NAMED:
            full, namespace = _names_of(node, namespace)
            if full in self._written:
                # Another included schema has this type too.
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
                return self.type_of(self._types[full], "")
        return name


def _names_of(node: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return a named type's full name, and the namespace of the names inside of its definition."""
    name, own = str(node.get("name", "")), node.get("namespace")
    namespace = name.rpartition(".")[0] if "." in name else str(namespace if own is None else own)
    return _full(name, namespace), namespace


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
