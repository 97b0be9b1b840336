"""Random Protobuf messages, made by Google's runtime, and what a column must have of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
    *("sfixed32", "sfixed64", "bool", "string", "bytes"),
)
KEYS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "sfixed64", "bool", "string")

_NUMBERS = {name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}") for name in SCALARS}
_BITS = {"32": 32, "64": 64}
_TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
# Numbers of fields whose tags have one, two and three bytes.
_TAGS = (*range(1, 240), *range(2040, 2060), 18_000, 20_000)
_DEEPEST = 3
_WORDS = ("", "x", "Ada", "größe", "a longer text of more than thirty-two bytes", "\U0001f600")


@dataclass
class Drawn:
    """A schema: as the text of a file, and as Google's runtime has it.

    Attributes:
        text: The file.
        message: The class of its first message.
        descriptors: The file and its imports as a serialized descriptor set.
    """

    text: str
    message: type[Message]
    descriptors: bytes


@dataclass
class _Drawer:
    rng: random.Random
    proto3: bool
    lines: list[str] = field(default_factory=list)
    names: int = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def enum(self, file: descriptor_pb2.FileDescriptorProto) -> str:
        made = file.enum_type.add(name=self.name("E"))
        numbers = [0, *self.rng.sample([1, 2, 3, -1, 7, 300], 3)]
        for number in numbers:
            made.value.add(name=f"{made.name}_V{number}".replace("-", "M"), number=number)
        body = " ".join(f"{value.name} = {value.number};" for value in made.value)
        self.lines.append(f"enum {made.name} {{ {body} }}")
        return made.name

    def message(self, file: descriptor_pb2.FileDescriptorProto, depth: int) -> str:
        made = file.message_type.add(name=self.name("M"))
        lines, oneofs = [], dict[str, list[str]]()
        # Some messages are empty, and some wide.
        wide = depth > 0 and self.rng.random() < 0.02
        fields = 200 if wide else self.rng.randrange(depth == _DEEPEST, 7)
        for number in self.rng.sample(_TAGS, fields):
            name = self.name("f")
            kind = self.kind(file, 0 if wide else depth)
            label = self.rng.choice(["one", "one", "optional", "repeated", "oneof", "map"])
            if label == "map":
                key = self.rng.choice(KEYS)
                self.map(made, name, number, key, kind)
                lines.append(f"  map<{key}, {kind}> {name} = {number};")
                continue
            added = made.field.add(name=name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            _type(added, kind)
            declared, options = f"{kind} {name} = {number}", ""
            if label == "repeated":
                added.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if kind in SCALARS and kind not in ("string", "bytes"):
                    added.options.packed = self.rng.random() < 0.5
                    options = f" [packed = {str(added.options.packed).lower()}]"
                lines.append(f"  repeated {declared}{options};")
            elif label == "oneof":
                group = self.rng.choice(["a", "b"])
                if group not in oneofs:
                    oneofs[group] = []
                    made.oneof_decl.add(name=f"{group}_of_{made.name}")
                added.oneof_index = list(oneofs).index(group)
                oneofs[group].append(f"    {declared};")
            elif self.proto3 and label == "optional":
                lines.append(f"  optional {declared};")
                added.proto3_optional = True
            elif self.proto3:
                lines.append(f"  {declared};")
            else:
                if kind in ("int32", "sint64", "string") and self.rng.random() < 0.5:
                    added.default_value = "-7" if kind != "string" else "by default"
                    options = f" [default = {added.default_value!r}]" if kind == "string" else " [default = -7]"
                lines.append(f"  optional {declared}{options};")
        for group, members in oneofs.items():
            lines += [f"  oneof {group}_of_{made.name} {{", *members, "  }"]
        # The members of a oneof stand together in the text, after the other fields.
        ordered = sorted(made.field, key=lambda one: one.oneof_index if one.HasField("oneof_index") else -1)
        copies = [descriptor_pb2.FieldDescriptorProto.FromString(one.SerializeToString()) for one in ordered]
        del made.field[:]
        made.field.extend(copies)
        # The oneofs that proto3 makes of optional fields come last.
        for one in made.field:
            if one.proto3_optional:
                one.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{one.name}")
        self.lines.append("\n".join([f"message {made.name} {{", *lines, "}"]))
        return made.name

    def kind(self, file: descriptor_pb2.FileDescriptorProto, depth: int) -> str:
        drawn = self.rng.random()
        if drawn < 0.65:
            return self.rng.choice(SCALARS)
        if drawn < 0.75:
            return self.enum(file)
        if drawn < 0.85 or depth == 0:
            return self.rng.choice(_TIMES)
        return self.message(file, depth - 1)

    def map(self, made: descriptor_pb2.DescriptorProto, name: str, number: int, key: str, kind: str) -> None:
        entry = made.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        for position, (part, of) in enumerate((("key", key), ("value", kind)), 1):
            _type(entry.field.add(name=part, number=position, label=optional), of)
        added = made.field.add(name=name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED)
        added.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        added.type_name = f".drawn.{made.name}.{entry.name}"


def _type(added: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in SCALARS:
        added.type = _NUMBERS[kind]
        return
    is_enum = kind.startswith("E")
    fields = descriptor_pb2.FieldDescriptorProto
    added.type = fields.TYPE_ENUM if is_enum else fields.TYPE_MESSAGE
    added.type_name = f".{kind}" if kind in _TIMES else f".drawn.{kind}"


def drawn_schema(rng: random.Random) -> Drawn:
    """Draw a file whose message has all kinds of fields, and messages in it."""
    drawer = _Drawer(rng, proto3=rng.random() < 0.6)
    syntax = "proto3" if drawer.proto3 else "proto2"
    known = (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR)
    imports = [one.name for one in known]
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="drawn", syntax=syntax, dependency=imports)
    top = drawer.message(file, _DEEPEST)
    head = [f'syntax = "{syntax}";', "package drawn;", *(f'import "{one}";' for one in imports)]
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet()
    for one in known:
        one.CopyToProto(files.file.add())
    files.file.add().CopyFrom(file)
    for added in files.file:
        pool.Add(added)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"drawn.{top}"))
    # The first message of a file is the one that is meant if none is named, and it was written last.
    return Drawn("\n".join([*head, *reversed(drawer.lines)]), made, files.SerializeToString())


def fill(rng: random.Random, message: Message, depth: int = 4, sign: int = 1) -> None:
    """Set some of the fields of a message, or few; the parts of a duration have one sign, as Protobuf demands."""
    absent = rng.choice([0.3, 0.3, 0.3, 0.99])
    for one in message.DESCRIPTOR.fields:
        if rng.random() < absent or (depth == 0 and one.type == one.TYPE_MESSAGE):
            continue
        if _is_map(one):
            _fill_map(rng, getattr(message, one.name), one, depth)
        elif one.is_repeated:
            items = getattr(message, one.name)
            for _ in range(rng.randrange(4)):
                if one.type == one.TYPE_MESSAGE:
                    fill(rng, items.add(), depth - 1)
                else:
                    items.append(scalar(rng, one))
        elif one.type == one.TYPE_MESSAGE:
            inner = getattr(message, one.name)
            inner.SetInParent()
            fill(rng, inner, depth - 1, (-1) ** one.number)
        else:
            value = scalar(rng, one)
            setattr(message, one.name, sign * abs(value) if message.DESCRIPTOR.full_name == _TIMES[1] else value)


def _fill_map(rng: random.Random, items: Any, one: FieldDescriptor, depth: int) -> None:
    key, value = (one.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(rng.randrange(4)):
        if value.type == value.TYPE_MESSAGE:
            fill(rng, items[scalar(rng, key)], depth - 1)
        else:
            items[scalar(rng, key)] = scalar(rng, value)


def scalar(rng: random.Random, one: FieldDescriptor) -> Any:
    """Draw a value of a field that is no message."""
    if one.type == one.TYPE_ENUM:
        known = [value.number for value in one.enum_type.values]
        return rng.choice(known if one.enum_type.is_closed else [*known, 99])
    kind = next(name for name, number in _NUMBERS.items() if number == one.type)
    if one.name == "nanos":
        return rng.randrange(1_000_000_000)
    if one.name == "seconds" and kind == "int64":
        return rng.randrange(-(10**9), 10**11)
    if kind in ("double", "float"):
        return rng.choice([0.0, -0.0, 1.5, -2.25, 1e30, float("inf")])
    if kind == "bool":
        return rng.random() < 0.5
    if kind in ("string", "bytes"):
        text = rng.choice(_WORDS)
        return text if kind == "string" else text.encode()
    bits = _BITS[kind[-2:]]
    size = rng.randrange(bits)
    value = rng.choice([0, 1 << size >> 1, (1 << size) - 1])
    if kind.startswith(("u", "fixed")):
        return rng.choice([value, (1 << bits) - 1 - value])
    return rng.choice([value >> 1, -(value >> 1)])


def row_of(message: Message) -> dict[str, object]:
    """Return what the column has of a message."""
    return dict(_cells(message))


def _cells(message: Message) -> Iterator[tuple[str, object]]:
    for one in message.DESCRIPTOR.fields:
        value = getattr(message, one.name)
        if _is_map(one):
            of = one.message_type.fields_by_name["value"]
            key = one.message_type.fields_by_name["key"]
            yield one.name, {_cell(key, k): _cell(of, value[k]) for k in value}
        elif one.is_repeated:
            yield one.name, [_cell(one, item) for item in value]
        elif one.has_presence and not message.HasField(one.name) and not one.has_default_value:
            yield one.name, None
        else:
            yield one.name, _cell(one, value)


def _cell(one: FieldDescriptor, value: Any) -> object:
    if one.type == one.TYPE_MESSAGE:
        if one.message_type.full_name in _TIMES:
            return value.seconds * 1_000_000 + int(value.nanos / 1000)
        return row_of(value)
    if one.type == one.TYPE_ENUM:
        return _symbol(one.enum_type, value)
    if one.type in (one.TYPE_UINT64, one.TYPE_FIXED64):
        return value - (1 << 64) if value >= 1 << 63 else value
    return value


def _symbol(kind: EnumDescriptor, number: int) -> str:
    found = kind.values_by_number.get(number)
    return f"UNKNOWN_ENUM_VALUE_{kind.name}_{number}" if found is None else str(found.name)


def _is_map(one: FieldDescriptor) -> bool:
    return one.type == one.TYPE_MESSAGE and one.message_type.GetOptions().map_entry
