"""Random pairs of Avro schemas, the reader's evolved from the writer's, and values of the writer schema."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = {
    "int": ("date",),
    "long": ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
    "bytes": ("decimal",),
    "fixed": ("decimal",),
    "string": ("uuid",),
}
PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "bytes": ("string",),
    "string": ("bytes",),
}
DEEPEST = 4


@dataclass(eq=False)
class Node:
    """A type. A named type that occurs twice, or in itself, is the same object."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    fields: list[Field] = dataclass_field(default_factory=list)
    # The items of an array, the values of a map, the branches of a union.
    parts: list[Node] = dataclass_field(default_factory=list)


@dataclass(eq=False)
class Field:
    """A field of a record; without a default if `default` is empty."""

    name: str
    type: Node
    aliases: tuple[str, ...] = ()
    default: tuple[Json, ...] = ()


def text_of(node: Node, defined: set[str] | None = None) -> Json:
    """The JSON of a schema, in which a named type is defined where it is first."""
    defined = set() if defined is None else defined
    if node.kind == "union":
        return [text_of(part, defined) for part in node.parts]
    if node.name and node.name in defined:
        return node.name
    defined.add(node.name)
    told: dict[str, Json] = {"type": node.kind}
    if node.name:
        told["name"] = node.name
        if node.aliases:
            told["aliases"] = list(node.aliases)
    if node.logical:
        told["logicalType"] = node.logical
        if node.logical == "decimal":
            told |= {"precision": node.precision, "scale": node.scale}
    if node.kind == "fixed":
        told["size"] = node.size
    elif node.kind == "enum":
        told["symbols"] = list(node.symbols)
        if node.default_symbol:
            told["default"] = node.default_symbol
    elif node.kind == "record":
        told["fields"] = [field_text(one, defined) for one in node.fields]
    elif node.kind in ("array", "map"):
        told["items" if node.kind == "array" else "values"] = text_of(node.parts[0], defined)
    return node.kind if len(told) == 1 else told


def field_text(one: Field, defined: set[str]) -> Json:
    told: dict[str, Json] = {"name": one.name, "type": text_of(one.type, defined)}
    if one.aliases:
        told["aliases"] = list(one.aliases)
    if one.default:
        told["default"] = one.default[0]
    return told


class Schemas:
    """Makes schemas, and changes them."""

    def __init__(self, chance: random.Random) -> None:
        self._logical = {kind: chance.choice(names) for kind, names in LOGICAL.items()}
        self._scale = chance.randint(0, 4)
        self._chance = chance
        self._names = 0
        self._known: list[Node] = []
        self._open: list[Node] = []

    def some(self, depth: int = 0) -> Node:
        """A random schema."""
        pick = self._chance.random()
        if depth >= DEEPEST or pick < 0.35:
            return self._scalar()
        if pick < 0.42 and self._known:
            return self._chance.choice(self._known)
        if pick < 0.48 and self._open:
            again = self._chance.choice(self._open)
            return self._chance.choice((Node("union", parts=[Node("null"), again]), Node("array", parts=[again])))
        if pick < 0.58:
            return Node("array", parts=[self.some(depth + 1)])
        if pick < 0.66:
            return Node("map", parts=[self.some(depth + 1)])
        if pick < 0.82:
            return union(
                [Node("null"), *(self.some(depth + 1) for _ in range(self._chance.randint(1, 3)))], self._chance
            )
        return self.record(depth)

    def record(self, depth: int = 0) -> Node:
        """A random record."""
        made = Node("record", self._name())
        self._open.append(made)
        made.fields = [Field(f"f{i}", self.some(depth + 1)) for i in range(self._chance.randint(0, 5))]
        self._open.pop()
        self._known.append(made)
        return made

    def _name(self) -> str:
        self._names += 1
        return self._chance.choice(("space.", "other.", "another.")) + f"N{self._names}"

    def _scalar(self) -> Node:
        kind = self._chance.choice((*PRIMITIVES, "int", "long", "string", "enum", "fixed"))
        made = Node(kind)
        if kind == "enum":
            made.name, made.symbols = self._name(), tuple("ABCDE"[: self._chance.randint(1, 5)])
        elif kind == "fixed":
            made.name, made.size = self._name(), self._chance.choice((0, 1, 4, 9, 16))
        self._known += [made] if made.name else []
        if kind in LOGICAL and self._chance.random() < 0.4:
            self._set_logical(made)
        return made

    def _set_logical(self, made: Node) -> None:
        # One logical type of each kind in a pair: where it changes, the kernel converts, and Java's Avro does not.
        made.logical, made.scale = self._logical[made.kind], self._scale
        # A precision that a fixed of this size cannot have is ignored by Java.
        made.precision = self._chance.choice((4, 9, 18, 38))

    def later(self, node: Node, rate: float) -> Node:
        """A later version of a schema, which mostly can read it; a rate of 0 changes nothing, of 1 much."""
        # What is added must not use types of the old version under their names.
        self._known = []
        return self._evolved(node, {}, rate)

    def _evolved(self, node: Node, changed: dict[int, Node], rate: float) -> Node:
        if id(node) in changed:
            return changed[id(node)]
        chance = self._chance
        if chance.random() < 0.02 * rate:
            return self.some(DEEPEST - 1)
        made = Node(**{**vars(node), "fields": [], "parts": []})
        if node.name:
            changed[id(node)] = made
            if chance.random() < 0.12 * rate:
                made.name = self._name()
                made.aliases = (node.name,) if chance.random() < 0.8 else ()
        if chance.random() < 0.1 * rate and not node.name and node.kind in PROMOTIONS:
            made.kind, made.logical = chance.choice(PROMOTIONS[node.kind]), None
        if node.kind == "enum" and chance.random() < 0.3 * rate:
            made.symbols = tuple(chance.sample("ABCDEFG", chance.randint(1, 6)))
            made.default_symbol = chance.choice((None, *made.symbols))
        elif node.kind == "record":
            made.fields = self._fields(node, changed, rate)
        parts = [self._evolved(part, changed, rate) for part in node.parts]
        if node.kind != "union":
            made.parts = parts
            if chance.random() < 0.08 * rate:
                return union([made, *(self._scalar() for _ in range(chance.randint(1, 2)))], chance)
            return made
        if chance.random() < 0.1 * rate:
            return chance.choice(parts)
        if chance.random() < 0.2 * rate:
            parts.insert(chance.randrange(len(parts) + 1), self.some(DEEPEST - 1))
        if chance.random() < 0.1 * rate:
            parts.pop(chance.randrange(len(parts)))
        return union(parts or [Node("null")], chance, shuffled=chance.random() < 0.2 * rate)

    def _fields(self, node: Node, changed: dict[int, Node], rate: float) -> list[Field]:
        chance, made = self._chance, []
        for one in node.fields:
            if chance.random() < 0.12 * rate:
                continue
            kept = Field(one.name, self._evolved(one.type, changed, rate))
            if chance.random() < 0.1 * rate:
                kept.name, kept.aliases = f"renamed_{one.name}", (one.name,)
            made.append(kept)
        if chance.random() < 0.2 * rate:
            chance.shuffle(made)
        for i in range(chance.choice((0, 0, 1, 2)) if chance.random() < rate else 0):
            added = Field(f"added{i}", self.some(DEEPEST - 1))
            if chance.random() < 0.97 and has_default(added.type, set()):
                added.default = (default_of(added.type, chance),)
            made.insert(chance.randrange(len(made) + 1), added)
        return made


def union(parts: list[Node], chance: random.Random, *, shuffled: bool = True) -> Node:
    """The union of these types, without those that it may not have."""
    kept: dict[str, Node] = {}
    for part in parts:
        for branch in part.parts if part.kind == "union" else [part]:
            kept.setdefault(branch.name or branch.kind, branch)
    branches = list(kept.values())
    if shuffled:
        chance.shuffle(branches)
    return Node("union", parts=branches)


def has_default(node: Node, seen: set[int]) -> bool:
    """Whether a default of this type ends: not of a record that contains itself."""
    if node.kind == "record":
        return id(node) not in seen and all(has_default(one.type, {*seen, id(node)}) for one in node.fields)
    return node.kind != "union" or has_default(node.parts[0], seen)


def default_of(node: Node, chance: random.Random) -> Json:
    """A default: of a union's first branch."""
    if node.kind == "union":
        return default_of(node.parts[0], chance)
    if node.kind == "record":
        return {one.name: default_of(one.type, chance) for one in node.fields}
    if node.kind in ("array", "map"):
        count = chance.choice((0, 1, 3)) if has_default(node.parts[0], set()) and node.parts[0].kind != "union" else 0
        values = [default_of(node.parts[0], chance) for _ in range(count)]
        return values if node.kind == "array" else {f"k{i}": value for i, value in enumerate(values)}
    made: dict[str, Callable[[], Json]] = {
        "null": lambda: None,
        "boolean": lambda: chance.random() < 0.5,
        "int": lambda: chance.randint(-(2**31), 2**31 - 1),
        "long": lambda: chance.randint(-(2**40), 2**40),
        "float": lambda: chance.choice((0.5, -3.0, 7, 1e30)),
        "double": lambda: chance.choice((0.1, -3.0, 7, 1e300)),
        "bytes": lambda: chance.choice(("", "ab", "\x01")),
        "string": lambda: chance.choice(("", "Ada", "größe")),
        "enum": lambda: chance.choice(node.symbols),
        "fixed": lambda: "\x01" * node.size,
    }
    return made[node.kind]()


def zigzag(number: int) -> bytes:
    raw, out = (number << 1) ^ (number >> 63), b""
    while raw >= 0x80:
        out, raw = out + bytes([raw & 0x7F | 0x80]), raw >> 7
    return out + bytes([raw])


def prefixed(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def value_of(node: Node, chance: random.Random, depth: int = 0) -> bytes:
    """A random value in Avro's encoding."""
    if node.kind == "record":
        return b"".join(value_of(one.type, chance, depth + 1) for one in node.fields)
    if node.kind == "union":
        branch = chance.randrange(len(node.parts))
        if depth > 12:
            branch = next((i for i, part in enumerate(node.parts) if part.kind == "null"), branch)
        return zigzag(branch) + value_of(node.parts[branch], chance, depth + 1)
    if node.kind in ("array", "map"):
        return blocks_of(node, chance, depth)
    ends = (0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31))
    made: dict[str, Callable[[], bytes]] = {
        "null": lambda: b"",
        "boolean": lambda: bytes([chance.randrange(2)]),
        "int": lambda: zigzag(chance.choice((*ends, chance.randint(-(2**31), 2**31 - 1)))),
        "long": lambda: zigzag(chance.choice((*ends, 2**63 - 1, -(2**63), chance.randint(-(2**50), 2**50)))),
        "float": lambda: struct.pack("<f", chance.choice((0.0, -0.0, 1.5, float("inf"), float("nan"), 3.4e38, 1e-45))),
        "double": lambda: struct.pack(
            "<d", chance.choice((0.0, -0.0, 0.1, float("-inf"), float("nan"), 1e308, 5e-324))
        ),
        "bytes": lambda: prefixed(chance.choice((b"", b"a", b"\x00\x07", b"\xff\x01", b"hello", chance.randbytes(17)))),
        "string": lambda: prefixed(chance.choice(("", "Ada", "größe", "\U0001f600", "x" * 90)).encode()),
        "enum": lambda: zigzag(chance.randrange(len(node.symbols))),
        "fixed": lambda: chance.choice((bytes(node.size), chance.randbytes(node.size), b"\xff" * node.size)),
    }
    return made[node.kind]()


def blocks_of(node: Node, chance: random.Random, depth: int) -> bytes:
    """The blocks of an array or a map, some with their sizes; a map may have a key twice.

    Not with values that the kernel may refuse and Java not: Java's map forgets the first one.
    """
    out = b""
    again = node.parts[0].kind in ("null", "boolean", "int", "double", "enum")
    keys = [b"k", b"l", b"", "ö".encode()] if again else [b"k%d" % i for i in range(6)]
    for _ in range(chance.choice((0, 1, 1, 2)) if depth < 8 else 0):
        count = chance.randint(1, 3)
        items = b""
        for _ in range(count):
            items += prefixed(chance.choice(keys) if again else keys.pop()) if node.kind == "map" else b""
            items += value_of(node.parts[0], chance, depth + 1)
        out += zigzag(count) + items if chance.random() < 0.7 else zigzag(-count) + zigzag(len(items)) + items
    return out + b"\0"
