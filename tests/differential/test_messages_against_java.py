"""The generated messages and Java's have the same bytes and the same fields, in each version."""

from __future__ import annotations

import base64
import importlib
import json
import random
import re
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_source.kafka_client.messages.codec import Reader, Writer
from kafkagroup.embedded import class_path
from kafkagroup.embedded.java import find_java
from release import messages
from release.messages import KAFKA, MODULES, Field, Schema, Structure, read_schema, snake

ORACLE = Path(__file__).with_name("MessageOracle.java")
SEED = 36
VALUES = 4
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
TEXTS = ("", "orders", "größe", "x" * 200, "\u0000\U0001f600")


@dataclass
class Case:
    """A message of a version."""

    schema: Schema
    version: int
    value: Any
    encoded: bytes

    @property
    def name(self) -> str:
        return self.schema.root.name

    @property
    def flexible(self) -> bool:
        return bool(self.schema.flexible) and self.version >= self.schema.flexible.first


def class_of(module: Any, structure: Structure) -> Any:
    found = module
    for part in structure.path.split("."):
        found = getattr(found, part)
    return found


def some(module: Any, structure: Structure, version: int, chance: random.Random) -> Any:
    """A value with all fields of a version."""
    present = [one for one in structure.fields if one.versions.first <= version <= one.versions.last]
    return class_of(module, structure)(**{one.name: field_value(module, one, version, chance) for one in present})


def field_value(module: Any, one: Field, version: int, chance: random.Random) -> Any:
    if one.nullable.first <= version <= one.nullable.last and chance.random() < 0.3:
        return None
    if one.is_array:
        return tuple(element(module, one, version, chance) for _ in range(chance.choice((0, 1, 2, 9))))
    return element(module, one, version, chance)


def element(module: Any, one: Field, version: int, chance: random.Random) -> Any:
    kind = one.element
    if one.structure is not None:
        return some(module, one.structure, version, chance)
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return chance.choice((0, 1, -1, 2**bits - 1, -(2**bits), chance.randrange(-(2**bits), 2**bits)))
    if kind == "uint16":
        return chance.randrange(2**16)
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300))
    if kind == "uuid":
        return UUID(int=chance.randrange(1, 2**128))
    return chance.choice(TEXTS) if kind == "string" else chance.randbytes(chance.choice((0, 3, 300)))


@pytest.fixture(scope="module")
def jar():
    with zipfile.ZipFile(messages.clients_jar()) as opened:
        yield opened


@pytest.fixture(scope="module")
def cases(jar) -> list[Case]:
    chance = random.Random(SEED)
    found = []
    for name, known in MODULES.items():
        module = importlib.import_module(messages.import_name(name))
        for api, newest in known.items():
            for kind in ("Request", "Response"):
                schema = read_schema(jar, f"{api}{kind}", newest)
                for version in range(schema.versions.first, schema.versions.last + 1):
                    values = [class_of(module, schema.root)()]
                    values += [some(module, schema.root, version, chance) for _ in range(VALUES)]
                    for value in values:
                        case = Case(schema, version, value, b"")
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


def plain(structure: Structure, value: Any, version: int) -> dict[str, Any]:
    """The fields of a version as Java's JSON has them, but for the names' spelling."""
    return {
        one.name: as_json(one, getattr(value, one.name), version)
        for one in structure.fields
        if one.versions.first <= version <= one.versions.last and one.element != "records"
    }


def as_json(one: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return [as_json(one, each, version) for each in value]
    if one.structure is not None:
        return plain(one.structure, value, version)
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def spelled(value: Any) -> Any:
    if isinstance(value, dict):
        names = {snake(name): spelled(each) for name, each in value.items()}
        return {name: each for name, each in names.items() if not name.startswith("records")}
    return [spelled(each) for each in value] if isinstance(value, list) else value


def without_untold(structure: Structure, told: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Our fields without the tagged ones that Java leaves out of its JSON, because they have their default."""
    fields = [one for one in structure.fields if one.name in ours and (one.name in told or one.tag is None)]
    return {one.name: without_untold_inside(one.structure, told.get(one.name), ours[one.name]) for one in fields}


def without_untold_inside(structure: Structure | None, told: Any, ours: Any) -> Any:
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
        ours = without_untold(case.schema.root, told, plain(case.schema.root, case.value, case.version))
        assert told == ours, f"{case.name} {case.version}"


def test_what_is_written_is_read(cases):
    for case in cases:
        reader = Reader(case.encoded, flexible=case.flexible)
        decoded = type(case.value).decode(reader, case.version)
        assert reader.position == len(case.encoded)
        assert decoded == case.value, f"{case.name} {case.version}"


def test_the_files_in_the_tree_are_what_the_script_writes(jar):
    for name in MODULES:
        written = messages.formatted(messages.module_text(jar, name), name)
        assert written == messages.path_of(name).read_text(), "run: python -m release.messages"


def test_no_description_of_the_schemas_is_in_the_files(jar):
    descriptions = set()
    for name in jar.namelist():
        if name.startswith("common/message/") and name.endswith(".json"):
            texts = re.findall(r'"about":\s*"((?:[^"\\]|\\.)*)"', jar.read(name).decode())
            descriptions |= {words for words in map(words_of, texts) if len(words.split()) >= 4}
    assert len(descriptions) > 500
    for name in MODULES:
        written = f" {words_of(messages.path_of(name).read_text())} "
        assert not [words for words in descriptions if f" {words} " in written]


def words_of(text: str) -> str:
    """The words of a text, however it is wrapped, quoted or capitalised."""
    return " ".join(re.findall(r"\w+", text.lower()))
