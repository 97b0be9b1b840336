"""Generates the messages of `kafka_source/kafka_client/messages`, and those of tests, from the schemas in Kafka's jar.

    ./run python -m release.messages

The schemas are JSON files in the jar kafka-clients, which `kafkagroup.embedded` resolves. The files it writes are
formatted and checked like all others; `tests/differential` compares them with the schemas, and their bytes with Java.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from kafkagroup.embedded import kafka_jars

KAFKA = "4.4.0"
PACKAGE = "kafka_source.kafka_client.messages"
# Fetch and Produce are encoded by hand, in `fetch/` and `produce/`; only tests and the simulator need all their fields.
TESTS_PACKAGE, OF_TESTS = "tests.support", {"record_messages"}

# The messages of each module, each with the newest version that this client uses. Later versions mean other things by
# the same fields, or need what callers do not give: topic ids in place of names, for example.
MODULES: Mapping[str, Mapping[str, int]] = {
    "cluster": {
        "ApiVersions": 5,
        "DescribeConfigs": 4,
        "FindCoordinator": 6,
        "ListOffsets": 11,
        "Metadata": 13,
        "OffsetForLeaderEpoch": 4,
    },
    "record_messages": {"Fetch": 13, "Produce": 13},
    "group": {
        "ConsumerGroupDescribe": 0,
        "ConsumerGroupHeartbeat": 1,
        "DeleteGroups": 2,
        "DescribeGroups": 6,
        "Heartbeat": 4,
        "JoinGroup": 9,
        "LeaveGroup": 5,
        "ListGroups": 5,
        "OffsetCommit": 10,
        "OffsetDelete": 0,
        "OffsetFetch": 10,
        "SyncGroup": 5,
    },
    "transaction": {
        "AddOffsetsToTxn": 4,
        "AddPartitionsToTxn": 5,
        "DescribeProducers": 0,
        "DescribeTransactions": 0,
        "EndTxn": 5,
        "InitProducerId": 6,
        "ListTransactions": 2,
        "TxnOffsetCommit": 6,
        "WriteTxnMarkers": 2,
    },
    "login": {"SaslAuthenticate": 2, "SaslHandshake": 1},
    "quota": {"AlterClientQuotas": 1, "DescribeClientQuotas": 1},
}
PURPOSES = {
    "cluster": "of the cluster: versions, metadata, coordinators, configurations and offsets of logs",
    "record_messages": "that carry records",
    "group": "of consumer groups",
    "transaction": "of producers and transactions",
    "login": "of SASL",
    "quota": "of client quotas (KIP-546)",
}

_INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
# Schema type: Python type, method of Reader and Writer.
_PLAIN = {
    "bool": ("bool", "boolean"),
    "uuid": ("UUID", "unique_id"),
    "float64": ("float", "float64"),
    "string": ("str", "string"),
    "bytes": ("bytes", "raw"),
    "records": ("bytes", "raw"),
    **{name: ("int", name) for name in _INTEGERS},
}
_NULLABLE = {"string": "nullable_string", "bytes": "nullable_raw", "records": "nullable_raw"}


@dataclass(frozen=True)
class Span:
    """Versions from `first` to `last`, both included; empty if `last` is lower."""

    first: int
    last: int

    @staticmethod
    def parse(text: str) -> Span:
        """Return the versions of a schema's text: `3`, `0-4`, `2+` or `none`."""
        if text == "none":
            return Span(0, -1)
        first, _, last = text.partition("-")
        return Span(int(first.rstrip("+")), 1 << 15 if text.endswith("+") else int(last or first))

    def __bool__(self) -> bool:
        return self.last >= self.first

    def within(self, other: Span) -> Span:
        """Return the versions that are in both."""
        return Span(max(self.first, other.first), min(self.last, other.last))

    def condition(self, of: Span) -> str:
        """Return the expression that is true for these of the versions; empty if all are."""
        parts = []
        if self.first > of.first:
            parts.append(f"version >= {self.first}")
        if self.last < of.last:
            parts.append(f"version <= {self.last}")
        if len(parts) == 2:
            return f"{self.first} <= version <= {self.last}" if self.last > self.first else f"version == {self.first}"
        return "".join(parts)


@dataclass(frozen=True)
class Field:
    """A field of a structure in the versions that are used."""

    name: str
    type: str
    versions: Span
    nullable: Span
    default: object
    tag: int | None
    tagged: Span
    structure: Structure | None

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type without the brackets of an array."""
        return self.type.removeprefix("[]")

    @property
    def may_be_null(self) -> bool:
        """Whether it is null in a version."""
        return bool(self.nullable)

    def annotation(self) -> str:
        """Return the Python type."""
        inner = self.structure.path if self.structure is not None else _PLAIN[self.element][0]
        whole = f"Sequence[{inner}]" if self.is_array else inner
        return f"{whole} | None" if self.may_be_null else whole

    def default_text(self) -> str:
        """Return the default as an expression."""
        if self.default == "null":
            return "None"
        if self.is_array:
            return "()"
        if self.structure is not None:
            return f"{self.structure.path}()"
        text = "" if self.default is None else str(self.default)
        kind = self.element
        if kind in _INTEGERS:
            return str(int(text or "0", 0))
        if kind == "bool":
            return "True" if text.lower() == "true" else "False"
        if kind == "float64":
            return repr(float(text or 0))
        if kind == "uuid":
            return "NO_UUID"
        return repr(text) if kind == "string" else "b''"

    @property
    def is_made_anew(self) -> bool:
        """Whether the default is a structure, which each object has for itself."""
        return self.structure is not None and not self.is_array and self.default != "null"

    def parameter(self) -> str:
        """Return the parameter of the constructor."""
        if self.is_made_anew:
            return f"{self.name}: {self.annotation()} | None = None"
        return f"{self.name}: {self.annotation()} = {self.default_text()}"

    def assignment(self) -> str:
        """Return the statement that keeps the parameter."""
        if self.is_made_anew:
            return f"self.{self.name}: Final = {self.default_text()} if {self.name} is None else {self.name}"
        return f"self.{self.name}: Final = {self.name}"


@dataclass(frozen=True)
class Structure:
    """A structure: its fields, and the structures that are declared in it."""

    path: str
    versions: Span
    fields: list[Field] = field(default_factory=list)
    inner: list[Structure] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def plain(self) -> list[Field]:
        """The fields that are not tagged."""
        return [one for one in self.fields if one.tag is None]

    @property
    def tagged(self) -> list[Field]:
        """The tagged fields by their numbers."""
        return sorted((one for one in self.fields if one.tag is not None), key=lambda one: one.tag or 0)


class Schema:
    """One JSON file of Kafka.

    Args:
        content: The parsed file.
        newest: The newest version to use.
    """

    def __init__(self, content: Mapping[str, Any], newest: int) -> None:
        self._content = content
        self.versions = Span.parse(content["validVersions"]).within(Span(0, newest))
        self.flexible = Span.parse(content["flexibleVersions"])
        name = content["name"]
        self._described = {one["name"]: one for one in content.get("commonStructs", ())}
        self._common: dict[str, Structure] = {}
        self.root = Structure(name, self.versions)
        self._fill(self.root, content["fields"], self.versions)

    def _named(self, name: str) -> Structure | None:
        """Return a structure that several fields have, None if there is none of this name."""
        if name in self._described and name not in self._common:
            self._common[name] = self._structure(self._described[name], self.root.path, self.versions, self.root)
        return self._common.get(name)

    def _structure(self, described: Mapping[str, Any], path: str, versions: Span, parent: Structure) -> Structure:
        mine = Span.parse(described["versions"]).within(versions)
        made = Structure(f"{path}.{described['name']}", mine)
        parent.inner.append(made)
        self._fill(made, described["fields"], versions)
        return made

    def _fill(self, structure: Structure, fields: Sequence[Mapping[str, Any]], versions: Span) -> None:
        for one in fields:
            # Above the versions that are used a structure may have what an array of it has not in these.
            mine = Span.parse(one["versions"]).within(versions)
            if not mine:
                continue
            element = one["type"].removeprefix("[]")
            inner = None
            if element not in _PLAIN:
                inner = self._named(element) or self._structure(
                    {**one, "name": element}, structure.path, versions, structure
                )
            structure.fields.append(
                Field(
                    snake(one["name"]),
                    one["type"],
                    mine,
                    Span.parse(one.get("nullableVersions", "none")).within(mine),
                    one.get("default"),
                    one.get("tag"),
                    Span.parse(one.get("taggedVersions", "none")).within(mine),
                    inner,
                )
            )


def snake(name: str) -> str:
    """Return a name of Kafka's schemas as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def read_schema(jar: zipfile.ZipFile, name: str, newest: int) -> Schema:
    """Return the schema of a message."""
    text = jar.read(f"common/message/{name}.json").decode()
    return Schema(json.loads(re.sub(r"(?m)^\s*//.*$", "", text)), newest)


def module_text(jar: zipfile.ZipFile, module: str) -> str:
    """Return the source of a module."""
    lines = [
        f'"""Messages {PURPOSES[module]}.',
        "",
        f"Generated by release/messages.py from the schemas of Apache Kafka {KAFKA}; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "import struct",
        "from collections.abc import Sequence",
        "from typing import Final",
        "from uuid import UUID",
        "",
        "from kafka_source.kafka_client.messages.codec import NO_UUID, Reader, Request, Structure, Writer",
        "",
    ]
    body: list[str] = []
    layouts: dict[str, str] = {}
    for name, newest in MODULES[module].items():
        response = read_schema(jar, f"{name}Response", newest)
        request = read_schema(jar, f"{name}Request", newest)
        body += ["", *_class(response, response.root, layouts, None), ""]
        body += ["", *_class(request, request.root, layouts, response.root.name), ""]
    lines += [f'{name} = struct.Struct(">{code}")' for code, name in sorted(layouts.items())]
    return "\n".join(lines + body) + "\n"


def _class(schema: Schema, structure: Structure, layouts: dict[str, str], response: str | None) -> list[str]:
    base = f"Request[{response}]" if response is not None else "Structure"
    lines = [f"class {structure.name}({base}):"]
    if response is not None:
        content = schema._content
        flexible = schema.flexible.first if schema.flexible else schema.versions.last + 1
        lines += [
            "",
            f"    API_KEY = {content['apiKey']}",
            f'    name = "{content["name"]}"',
            f"    min_version = {schema.versions.first}",
            f"    max_version = {schema.versions.last}",
            f"    flexible_from = {flexible}",
        ]
    for inner in structure.inner:
        lines += ["", *_indented(_class(schema, inner, layouts, None))]
    names = "".join(f'"{one.name}", ' for one in structure.fields)
    lines += ["", f"    __slots__ = ({names})"]
    if structure.fields:
        # Not a dataclass: Python would compile its methods each time when the module is loaded, 0.3 ms for each class.
        parameters = ", ".join(one.parameter() for one in structure.fields)
        lines += ["", f"    def __init__(self, {parameters}) -> None:"]
        lines += [f"        {one.assignment()}" for one in structure.fields]
    lines += ["", *_indented(list(_encode(schema, structure)))]
    lines += ["", *_indented(list(_decode(schema, structure, layouts)))]
    if response is not None:
        lines += [
            "",
            "    @staticmethod",
            f"    def decode_response(reader: Reader, version: int) -> {response}:",
            '        """Read the response."""',
            f"        return {response}.decode(reader, version)",
        ]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def _encode(schema: Schema, structure: Structure) -> Iterator[str]:
    versions = structure.versions
    yield "def encode(self, writer: Writer, version: int) -> None:"
    yield '    """Write it in a version."""'
    for condition, fields in groupby(structure.plain, lambda one: one.versions.condition(versions)):
        indent = "    "
        if condition:
            yield f"    if {condition}:"
            indent += "    "
        for one in fields:
            for line in _write(one, f"self.{one.name}", one.versions, "writer"):
                yield indent + line
    flexible = schema.flexible.within(versions)
    if not flexible:
        return
    condition = flexible.condition(versions)
    indent = "    "
    if condition:
        yield f"    if {condition}:"
        indent += "    "
    if not structure.tagged:
        yield f"{indent}writer.tags()"
        return
    yield f"{indent}tags: list[tuple[int, bytes]] = []"
    for one in structure.tagged:
        default = one.default_text()
        unlike = "is not" if default == "None" else "!="
        other = f"self.{one.name}" if default == "False" else f"self.{one.name} {unlike} {default}"
        checks = [one.tagged.condition(flexible), other]
        yield f"{indent}if {' and '.join(filter(None, checks))}:"
        yield f"{indent}    tagged = Writer(flexible=True)"
        for line in _write(one, f"self.{one.name}", one.tagged, "tagged"):
            yield f"{indent}    {line}"
        yield f"{indent}    tags.append(({one.tag}, tagged.written()))"
    yield f"{indent}writer.tags(tags)"


def _write(one: Field, value: str, versions: Span, writer: str) -> Iterator[str]:
    sometimes = one.nullable.condition(versions) if one.may_be_null else ""
    if not one.is_array and one.structure is None:
        if not one.may_be_null:
            yield f"{writer}.{_PLAIN[one.element][1]}({value})"
        else:
            if sometimes:
                yield f"if {value} is None and not ({sometimes}):"
                yield f'    raise ValueError("{one.name} is null")'
            yield f"{writer}.{_NULLABLE[one.element]}({value})"
        return
    indent = ""
    if one.may_be_null:
        yield f"if {value} is None:"
        if sometimes:
            yield f"    if not ({sometimes}):"
            yield f'        raise ValueError("{one.name} is null")'
        yield f"    {writer}.null_array()" if one.is_array else f"    {writer}.int8(-1)"
        yield "else:"
        indent = "    "
    if one.is_array and one.structure is not None:
        yield f"{indent}{writer}.count(len({value}))"
        yield f"{indent}for {one.name}_item in {value}:"
        yield f"{indent}    {one.name}_item.encode({writer}, version)"
    elif one.is_array:
        yield f"{indent}{writer}.{_PLAIN[one.element][1]}s({value})"
    else:
        if one.may_be_null:
            yield f"{indent}{writer}.int8(1)"
        yield f"{indent}{value}.encode({writer}, version)"


def _decode(schema: Schema, structure: Structure, layouts: dict[str, str]) -> Iterator[str]:
    versions = structure.versions
    yield "@staticmethod"
    yield f"def decode(reader: Reader, version: int) -> {structure.path}:"
    yield '    """Read it in a version."""'
    for condition, fields in groupby(structure.plain, lambda one: one.versions.condition(versions)):
        mine = list(fields)
        indent = "    "
        if condition:
            for one in mine:
                yield f"    {one.name}: {one.annotation()} = {one.default_text()}"
            yield f"    if {condition}:"
            indent += "    "
        for integers, group in groupby(mine, lambda one: one.type in _INTEGERS):
            several = list(group)
            if integers and len(several) > 1:
                code = "".join(_INTEGERS[one.type] for one in several)
                layout = layouts.setdefault(code, f"_{''.join(f'{c.upper()}' if c != 'H' else 'U' for c in code)}")
                yield f"{indent}{', '.join(one.name for one in several)} = reader.numbers({layout})"
            else:
                for one in several:
                    yield f"{indent}{one.name} = {_read(one, one.versions)}"
    flexible = schema.flexible.within(versions)
    for one in structure.tagged:
        yield f"    {one.name}: {one.annotation()} = {one.default_text()}"
    if flexible:
        condition = flexible.condition(versions)
        indent = "    "
        if condition:
            yield f"    if {condition}:"
            indent += "    "
        if structure.tagged:
            yield f"{indent}for tag in reader.tags():"
            for number, one in enumerate(structure.tagged):
                checks = [f"tag == {one.tag}", one.tagged.condition(flexible)]
                yield f"{indent}    {'elif' if number else 'if'} {' and '.join(filter(None, checks))}:"
                yield f"{indent}        {one.name} = {_read(one, one.tagged)}"
        else:
            yield f"{indent}reader.skip_tags()"
    names = ", ".join(one.name for one in structure.fields)
    yield f"    return {structure.path}({names})"


def _read(one: Field, versions: Span) -> str:
    sometimes = one.nullable.condition(versions) if one.may_be_null else ""
    if one.is_array and one.structure is not None:
        arguments, method = f"({one.structure.path}.decode, version)", "array"
    elif one.is_array:
        arguments, method = "()", f"{_PLAIN[one.element][1]}s"
    elif one.structure is not None:
        if not one.may_be_null:
            return f"{one.structure.path}.decode(reader, version)"
        return f"{one.structure.path}.decode(reader, version) if reader.int8() >= 0 else None"
    else:
        arguments, method = "()", _PLAIN[one.element][1]
    required = f"reader.{method}{arguments}"
    if not one.may_be_null:
        return required
    nullable = f"reader.nullable_{method}{arguments}"
    return f"{nullable} if {sometimes} else {required}" if sometimes else nullable


def clients_jar() -> Path:
    """Return the jar with the schemas."""
    return next(jar for jar in kafka_jars(KAFKA) if jar.name == f"kafka-clients-{KAFKA}.jar")


def formatted(text: str, module: str) -> str:
    """Return a module's source as ruff formats it, without the imports that it does not need."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    name = str(path_of(module))
    for command in (["check", "-q", "--fix", "--exit-zero"], ["format", "-q"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", name, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def import_name(module: str) -> str:
    """Return the name under which a module of MODULES is imported."""
    return f"{TESTS_PACKAGE if module in OF_TESTS else PACKAGE}.{module}"


def path_of(module: str) -> Path:
    """Return the file of a module of MODULES."""
    return Path(__file__).parents[1].joinpath(*import_name(module).split(".")).with_suffix(".py")


def main() -> None:
    """Write all modules."""
    with zipfile.ZipFile(clients_jar()) as jar:
        for module in MODULES:
            text = formatted(module_text(jar, module), module)
            path_of(module).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
