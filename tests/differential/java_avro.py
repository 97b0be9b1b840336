"""What Java's Avro reads of random pairs of writer and reader schema, and how that is as a column of ours."""

import json
import os
import random
import re
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from kafkagroup.embedded.java import find_java
from tests.differential.avro_pairs import Node, Schemas, text_of, value_of

ORACLE = Path(__file__).with_name("AvroOracle.java")
JARS = Path(pyspark.__file__).parent / "jars"
VALUES = 5
RECURSION = 3
EXACT = Context(prec=60)


# Java's Avro reads the raw value as the reader's logical type.
ANOTHER_MEANING = re.compile(
    r"of the writer schema cannot be read as .*\(|\) of the writer schema cannot be read as"
    r"|more digits (after|before) the point|too large for its unit"
)


@dataclass(frozen=True)
class Pair:
    """A writer and a reader schema, and values."""

    number: int
    writer: str
    reader: str
    node: Node = field(repr=False)
    values: tuple[bytes, ...]


def pair(number: int) -> Pair:
    chance = random.Random(number)
    schemas = Schemas(chance)
    writer = schemas.record() if chance.random() < 0.8 else schemas.some()
    rate = chance.choice((0.0, 0.5, 1.0))
    reader = schemas.later(writer, rate)
    values = tuple(value_of(writer, chance) for _ in range(VALUES))
    return Pair(number, json.dumps(text_of(writer)), json.dumps(text_of(reader)), reader, values)


def java(pairs: list[Pair]) -> list[list[dict[str, Any]]]:
    """Java's answers."""
    asked = [
        json.dumps({"writer": one.writer, "reader": one.reader, "values": [value.hex() for value in one.values]})
        for one in pairs
    ]
    needed = (
        "avro-1",
        "jackson-core-2",
        "jackson-databind-2",
        "jackson-annotations-2",
        "slf4j-api",
        "commons-compress",
    )
    jars = [str(path) for name in needed for path in JARS.glob(f"{name}*.jar")]
    done = subprocess.run(
        [str(find_java()), "-cp", os.pathsep.join(jars), str(ORACLE)],
        input="\n".join(asked) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=400,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(pairs), done.stderr[-2000:]
    return answers


class BadError(Exception):
    """The kernel refuses, by design, a value that Java reads."""


def is_shown(node: Node, opened: tuple[Node, ...]) -> bool:
    """Whether a type has a column: not below the recursion depth."""
    if node.kind == "record":
        return opened.count(node) < RECURSION
    if node.kind in ("array", "map"):
        return is_shown(node.parts[0], opened)
    others = [part for part in node.parts if part.kind != "null"]
    return len(others) != 1 or is_shown(others[0], opened)


def is_cut(node: Node, opened: tuple[Node, ...] = ()) -> bool:
    """Whether a part of a type is left out because of the recursion depth."""
    if not is_shown(node, opened):
        return True
    inside = (*opened, node) if node.kind == "record" else opened
    return any(is_cut(part, inside) for part in (*node.parts, *(one.type for one in node.fields)))


def expected(node: Node, told: Any, opened: tuple[Node, ...] = ()) -> Any:
    """What the kernel's column has for a value as Java tells it."""
    if node.kind == "union":
        return expected_of_union(node, told, opened)
    if node.kind == "record":
        inside = (*opened, node)
        fields = zip(node.fields, told, strict=True)
        return {one.name: expected(one.type, each, inside) for one, each in fields if is_shown(one.type, inside)}
    if node.kind == "array":
        return [expected(node.parts[0], each, opened) for each in told]
    if node.kind == "map":
        return [(key, expected(node.parts[0], each, opened)) for key, each in told]
    if node.kind in ("float", "double"):
        return number(struct.unpack(">d", struct.pack(">q", told))[0])
    if node.kind in ("bytes", "fixed"):
        data = bytes.fromhex(told)
        return decimal(node, data) if is_decimal(node) else data
    if node.kind == "long" and node.logical in ("timestamp-millis", "local-timestamp-millis"):
        if not -(2**63) <= told * 1000 < 2**63:
            raise BadError("microseconds")
        return told * 1000
    if node.kind == "string" and "\ufffd" in told:
        raise BadError("UTF-8")
    return told


def expected_of_union(node: Node, told: Any, opened: tuple[Node, ...]) -> Any:
    branch, value = node.parts[told[0]], told[1]
    others = [part for part in node.parts if part.kind != "null"]
    if branch.kind == "null":
        return None
    if len(others) == 1 or {part.kind for part in others} in ({"int", "long"}, {"float", "double"}):
        wide = len(others) > 1
        return expected(Node(branch.kind) if wide else branch, value, opened)
    members = {f"member{i}": part for i, part in enumerate(others) if is_shown(part, opened)}
    return {name: expected(part, value, opened) if part is branch else None for name, part in members.items()}


def is_decimal(node: Node) -> bool:
    most = len(str(2 ** (8 * node.size - 1) - 1)) - 1 if node.kind == "fixed" and node.size else 0
    fits = node.kind == "bytes" or node.precision <= most
    return node.logical == "decimal" and fits and node.scale <= node.precision


def decimal(node: Node, data: bytes) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    if not data or abs(unscaled) >= 10**node.precision:
        raise BadError("decimal")
    return Decimal(unscaled).scaleb(-node.scale, EXACT)


def number(value: float) -> str:
    """A float with its sign, and any NaN as one."""
    return repr(value)


def plain(array: pa.Array) -> list[Any]:
    """The values of a column, with dates and timestamps as numbers."""
    kind, valid = array.type, array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        children = [plain(array.field(i)) for i in range(kind.num_fields)]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        rows: list[Any] = [
            {name: child[row] for name, child in zip(names, children, strict=True)} for row in range(len(array))
        ]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            items: list[Any] = list(zip(plain(array.keys), plain(array.items), strict=True))
        else:
            items = plain(array.values)
        ends = array.offsets.to_pylist()
        rows = [items[start:end] for start, end in pairwise(ends)]
        if pa.types.is_map(kind):
            rows = [sorted(row, key=lambda entry: entry[0].encode("utf-16-be")) for row in rows]
    elif pa.types.is_temporal(kind):
        rows = array.view(pa.int32() if pa.types.is_date(kind) else pa.int64()).to_pylist()
    elif pa.types.is_floating(kind):
        rows = [None if value is None else number(value) for value in array.to_pylist()]
    else:
        rows = array.to_pylist()
    return [row if there else None for row, there in zip(rows, valid, strict=True)]


@dataclass
class Tally:
    """How many values there were of each kind.

    Attributes:
        equal: Read alike.
        failed: Errors of both.
        refused: Errors of the kernel only, by design.
        unseen: Errors of Java only, of a schema with fields below the recursion depth, where the kernel does not look.
    """

    equal: int = 0
    failed: int = 0
    refused: int = 0
    unseen: int = 0


def compare(one: Pair, answers: list[dict[str, Any]], rows: list[Any], bad: Mapping[int, str], tally: Tally) -> None:
    """Compare values with Java's.

    Args:
        one: The pair.
        answers: Java's.
        rows: The values, as `plain` has them.
        bad: Why those values are bad that are, by row.
        tally: Counts the values.
    """
    cut = is_cut(one.node)
    for row, answer in enumerate(answers):
        place = f"{one}: value {row}: {answer}, ours: {bad.get(row, rows[row])}"
        if "error" in answer:
            assert row in bad or cut, place
            tally.failed += row in bad
            tally.unseen += row not in bad
            continue
        try:
            value = expected(one.node, answer["value"])
        except BadError:
            assert row in bad, place
            tally.refused += 1
            continue
        if row in bad and ANOTHER_MEANING.search(bad[row]):
            tally.refused += 1
            continue
        assert row not in bad, place
        assert rows[row] == value, f"{place}, expected: {value}"
        tally.equal += 1
