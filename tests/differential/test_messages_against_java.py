"""The tables of messages have the fields of the schemas, and Java reads and writes the same bytes, in each version."""

import base64
import inspect
import json
import random
import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_source.kafka_client.messages import cluster, group, login, quota, tables, transaction
from kafka_source.kafka_client.messages.codec import NO_UUID, Reader, Writer
from kafka_source.kafka_client.messages.tables import Field, Request, Structure
from kafkagroup.embedded import class_path, kafka_jars
from kafkagroup.embedded.java import find_java
from tests.support import record_messages

KAFKA = "4.4.0"
ORACLE = Path(__file__).with_name("MessageOracle.java")
SCHEMAS = "common/message/"
MODULES = (cluster, group, login, quota, transaction, record_messages)
REQUESTS = [
    found
    for module in MODULES
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Request) and found is not Request
]
SEED = 36
VALUES = 4
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
TEXTS = ("", "orders", "größe", "x" * 200, "\u0000\U0001f600")
# A type's name in the schemas where it is another one than in the tables.
NAMES = {"bool": "boolean", "uuid": "unique_id", "bytes": "raw", "records": "raw"}
STRUCTURE = "structure"
DEFAULTS: dict[str, object] = {STRUCTURE: STRUCTURE, "float64": 0.0, "unique_id": NO_UUID, "string": "", "raw": b""}


@dataclass
class Case:
    """A message of a version."""

    version: int
    value: Any
    flexible: bool
    encoded: bytes = b""

    @property
    def name(self) -> str:
        return type(self.value).__name__


def of_version(structure: type[Structure], version: int) -> dict[str, Field]:
    return {name: one for name, one in structure.FIELDS.items() if one.since <= version <= one.until}


def some(structure: type[Structure], version: int, chance: random.Random) -> Structure:
    """A value with all fields of a version."""
    return structure(
        **{name: field_value(one, version, chance) for name, one in of_version(structure, version).items()}
    )


def field_value(one: Field, version: int, chance: random.Random) -> Any:
    if one.may_be_null(version) and chance.random() < 0.3:
        return None
    if one.kind.is_array:
        return tuple(element(one, version, chance) for _ in range(chance.choice((0, 1, 2, 9))))
    return element(one, version, chance)


def element(one: Field, version: int, chance: random.Random) -> Any:
    kind = one.kind.method.removesuffix("s")
    if one.kind.structure is not None:
        return some(one.kind.structure, version, chance)
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return chance.choice((0, 1, -1, 2**bits - 1, -(2**bits), chance.randrange(-(2**bits), 2**bits)))
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300))
    if kind == "unique_id":
        return UUID(int=chance.randrange(1, 2**128))
    return chance.choice(TEXTS) if kind == "string" else chance.randbytes(chance.choice((0, 3, 300)))


@pytest.fixture(scope="module")
def jar():
    with zipfile.ZipFile(next(jar for jar in kafka_jars(KAFKA) if jar.name == f"kafka-clients-{KAFKA}.jar")) as opened:
        yield opened


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    chance = random.Random(SEED)
    found = []
    for request in REQUESTS:
        for message in (request, request._response):
            for version in range(request.min_version, request.max_version + 1):
                values = [message(), *(some(message, version, chance) for _ in range(VALUES))]
                for value in values:
                    case = Case(version, value, version >= request.flexible_from)
                    writer = Writer(flexible=case.flexible)
                    try:
                        value.encode(writer, version)
                    except ValueError:
                        # A default that is null where the version does not allow it.
                        assert value is values[0]
                        continue
                    case.encoded = writer.written()
                    found.append(case)
    assert len(found) > 1500
    return found


@pytest.fixture(scope="module")
def java(cases) -> list[str]:
    """Java's answers."""
    done = subprocess.run(
        [str(find_java()), "-cp", class_path(KAFKA), str(ORACLE)],
        input="".join(f"{case.name} {case.version} {case.encoded.hex()}\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr[-2000:]
    return answers


def plain(value: Structure, version: int) -> dict[str, Any]:
    """The fields of a version as Java's JSON has them, but for the names' spelling."""
    return {
        name: as_json(getattr(value, name), version)
        for name in of_version(type(value), version)
        if not name.startswith("records")
    }


def as_json(value: Any, version: int) -> Any:
    if isinstance(value, tuple):
        return [as_json(each, version) for each in value]
    if isinstance(value, Structure):
        return plain(value, version)
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def snake(name: str) -> str:
    """A name of the schemas as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def spelled(value: Any) -> Any:
    if isinstance(value, dict):
        names = {snake(name): spelled(each) for name, each in value.items()}
        return {name: each for name, each in names.items() if not name.startswith("records")}
    return [spelled(each) for each in value] if isinstance(value, list) else value


def without_untold(structure: type[Structure], told: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Our fields without the tagged ones that Java leaves out of its JSON, because they have their default."""
    fields = {name: structure.FIELDS[name] for name in ours}
    return {
        name: without_untold_inside(one.kind.structure, told.get(name), ours[name])
        for name, one in fields.items()
        if name in told or one.tag is None
    }


def without_untold_inside(structure: type[Structure] | None, told: Any, ours: Any) -> Any:
    if structure is None:
        return ours
    if isinstance(ours, list) and isinstance(told, list):
        return [without_untold(structure, *each) for each in zip(told, ours, strict=True)]
    return without_untold(structure, told, ours) if isinstance(ours, dict) and isinstance(told, dict) else ours


def test_java_reads_and_writes_the_same_bytes(cases, java):
    for case, answer in zip(cases, java, strict=True):
        left, written, *_ = answer.split(" ", 2)
        assert (left, written) == ("0", case.encoded.hex()), f"{case.name} {case.version}: {answer[:300]} {case.value}"


def test_java_reads_the_same_fields(cases, java):
    for case, answer in zip(cases, java, strict=True):
        told = spelled(json.loads(answer.split(" ", 2)[2]))
        ours = without_untold(type(case.value), told, plain(case.value, case.version))
        assert told == ours, f"{case.name} {case.version}"


def test_what_is_written_is_read(cases):
    for case in cases:
        reader = Reader(case.encoded, flexible=case.flexible)
        decoded = type(case.value).decode(reader, case.version)
        assert reader.position == len(case.encoded)
        assert decoded == case.value, f"{case.name} {case.version}"


def schema(jar: zipfile.ZipFile, name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(f"{SCHEMAS}{name}.json").decode()))
    return parsed


def span(text: str, within: tuple[int, int]) -> tuple[int, int] | None:
    """The first and last of the versions `3`, `0-4`, `2+` or `none` that are within others; None if there are none."""
    if text == "none":
        return None
    low, _, high = text.partition("-")
    last = within[1] if text.endswith("+") else int(high or low)
    found = max(int(low.rstrip("+")), within[0]), min(last, within[1])
    return found if found[0] <= found[1] else None


def of_schema(fields: list[Any], common: Mapping[str, Any], versions: tuple[int, int]) -> Iterator[tuple[object, ...]]:
    """Name, type, default, tag, versions and versions with null of each field, and the fields of its structure."""
    for one in fields:
        mine = span(one["versions"], versions)
        if mine is None:
            continue
        array, element = one["type"].startswith("[]"), one["type"].removeprefix("[]")
        inner = one.get("fields") or common.get(element, {}).get("fields")
        kind = STRUCTURE if inner else NAMES.get(element, element)
        default = default_of(kind, one.get("default")) if not array or one.get("default") == "null" else ()
        assert one.get("tag") is None or span(one["taggedVersions"], versions) == mine
        structure = inner and [*of_schema(inner, common, mine)]
        null = span(one.get("nullableVersions", "none"), mine)
        yield snake(one["name"]), kind, array, default, one.get("tag"), mine, null, structure


def default_of(kind: str, text: Any) -> object:
    if text == "null":
        return None
    if kind == "boolean":
        return str(text).lower() == "true"
    return DEFAULTS.get(kind, 0) if text in (None, "") else text if kind == "string" else int(str(text), 0)


def of_table(table: type[Structure], versions: tuple[int, int]) -> Iterator[tuple[object, ...]]:
    for name, one in table.FIELDS.items():
        inner, (first, last) = one.kind.structure, versions
        mine = max(one.since, first), min(one.until, last)
        structure = inner and [*of_table(inner, mine)]
        kind = STRUCTURE if inner else one.kind.method.removesuffix("s")
        default = STRUCTURE if inner and one.default == inner() else one.default
        null = None if one.null_since is None else (max(one.null_since, mine[0]), mine[1])
        yield name, kind, one.kind.is_array, default, one.tag, mine, null, structure


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda found: found.__name__)
def test_a_table_has_the_fields_of_its_schema(jar, request_type):
    versions = (request_type.min_version, request_type.max_version)
    for table in (request_type, request_type._response):
        found = schema(jar, table.__name__)
        assert span(found["validVersions"], (0, versions[1])) == versions
        assert span(found["flexibleVersions"], versions) == span(f"{request_type.flexible_from}+", versions)
        assert found["apiKey"] == request_type.API_KEY
        common = {one["name"]: one for one in found.get("commonStructs", ())}
        assert [*of_table(table, versions)] == [*of_schema(found["fields"], common, versions)]


def test_no_description_of_the_schemas_is_in_the_files(jar):
    descriptions = set()
    for name in jar.namelist():
        if name.startswith("common/message/") and name.endswith(".json"):
            texts = re.findall(r'"about":\s*"((?:[^"\\]|\\.)*)"', jar.read(name).decode())
            descriptions |= {words for words in map(words_of, texts) if len(words.split()) >= 4}
    assert len(descriptions) > 500
    for module in (*MODULES, tables):
        written = f" {words_of(inspect.getsource(module))} "
        assert not [words for words in descriptions if f" {words} " in written]


def words_of(text: str) -> str:
    """The words of a text, however it is wrapped, quoted or capitalised."""
    return " ".join(re.findall(r"\w+", text.lower()))
