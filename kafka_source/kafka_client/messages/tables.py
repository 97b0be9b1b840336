"""Structures of the Kafka protocol as typed tables: a line for each field, with the versions that have it.

    class Broker(Structure):
        node_id: int = field(int32)
        rack: str | None = field(string, since=1, null_since=1, default=None)

The code that reads or writes a structure in a version is compiled at its first use, because a process uses few
structures. Source: Kafka's protocol guide, and KIP-482 for flexible versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args, overload

from kafka_source.kafka_client.messages.codec import NO_UUID, Reader, Writer

if TYPE_CHECKING:
    # Python has `dataclass_transform` from 3.11 on; mypy has this import for every version.
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Return a decorator without an effect."""
        return lambda decorated: decorated


_T = TypeVar("_T")
_S = TypeVar("_S", bound="Structure")
_R_co = TypeVar("_R_co", covariant=True)

_LATEST = 1 << 15
_DEFAULT: Any = object()


class Kind(Generic[_T]):
    """A type of the protocol.

    Args:
        default: The value of a field without another default.
        method: The method of `Reader` and `Writer` for the type; empty: `structure` has its own methods.
        code: The code of a number's type in `struct`; consecutive numbers are read in one call.
        structure: The structure, or the structure of an array's elements.
    """

    __slots__ = ("code", "default", "is_array", "method", "structure")

    def __init__(self, default: _T, method: str, code: str = "", structure: type[Structure] | None = None) -> None:
        self.default, self.method, self.code, self.structure = default, method, code, structure
        self.is_array = default == ()


boolean = Kind(False, "boolean", "?")
int8, int16, int32, int64 = (Kind(0, f"int{bits}", code) for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q")))
float64 = Kind(0.0, "float64", "d")
unique_id = Kind(NO_UUID, "unique_id")
string = Kind("", "string")
raw = Kind(b"", "raw")


def array(element: Kind[_T] | type[_T]) -> Kind[Sequence[_T]]:
    """Return the type of arrays with these elements."""
    if isinstance(element, Kind):
        return Kind((), f"{element.method}s")
    return Kind((), "array", structure=cast("type[Structure]", element))


class Field(NamedTuple):
    """A field of a structure; `field` declares it.

    Attributes:
        kind: The field's type.
        since: The first version of the structure that has the field.
        until: The last version of the structure that has the field.
        null_since: The first version in which the field may be null; None: there is none.
        default: The field's value in a version that does not have the field.
        tag: The number of a tagged field.
        secret: Whether `repr` hides the field's value.
    """

    kind: Kind[Any]
    since: int
    until: int
    null_since: int | None
    default: object
    tag: int | None
    secret: bool

    def may_be_null(self, version: int) -> bool:
        """Return whether a version allows null."""
        return self.null_since is not None and version >= self.null_since


@overload
def field(
    kind: Kind[_T] | type[_T],
    *,
    since: int = ...,
    until: int = ...,
    default: _T = ...,
    tag: int | None = ...,
    secret: bool = ...,
) -> _T: ...
@overload
def field(
    kind: Kind[_T] | type[_T],
    *,
    null_since: int,
    since: int = ...,
    until: int = ...,
    default: _T | None = ...,
    tag: int | None = ...,
) -> _T | None: ...
def field(
    kind: Kind[_T] | type[_T],
    *,
    since: int = 0,
    until: int = _LATEST,
    null_since: int | None = None,
    default: object = _DEFAULT,
    tag: int | None = None,
    secret: bool = False,
) -> Any:
    """Declare a field of a structure; see `Field`."""
    if not isinstance(kind, Kind):
        known = cast("_T", None) if default is None else kind()
        kind = Kind(known, "", structure=cast("type[Structure]", kind))
    return Field(kind, since, until, null_since, kind.default if default is _DEFAULT else default, tag, secret)


class _Table(type):
    """Makes `__slots__` of the fields that a class declares."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> _Table:
        fields = {name: value for name, value in namespace.items() if isinstance(value, Field)}
        rest = {name: value for name, value in namespace.items() if name not in fields}
        return super().__new__(mcs, name, bases, {**rest, "__slots__": tuple(fields), "FIELDS": fields}, **keywords)


@dataclass_transform(frozen_default=True)
class Structure(metaclass=_Table):
    """Immutable values with the fields that a class declares; equal if the fields are equal.

    Attributes:
        FIELDS: The fields in their order.
    """

    FIELDS: ClassVar[Mapping[str, Field]]

    def __init__(self, *values: object, **named: object) -> None:
        # The first object of a class compiles its constructor.
        _set_constructor(type(self))(self, *values, **named)

    def encode(self, writer: Writer, version: int) -> None:
        """Write the structure in a version, in the flexible encoding (KIP-482) if the writer is flexible."""
        _writer(type(self), version, writer.flexible)(self, writer)

    @classmethod
    def decode(cls: type[_S], reader: Reader, version: int) -> _S:
        """Read the structure in a version, in the flexible encoding (KIP-482) if the reader is flexible.

        Raises:
            ValueError: The bytes do not match the schema. `struct.error` and `IndexError` mean the same.
        """
        return cast("_S", _reader(cls, version, reader.flexible)(reader))

    def _values(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.FIELDS])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Structure) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = (f"{name}={'***' if of.secret else repr(getattr(self, name))}" for name, of in self.FIELDS.items())
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Request(Structure, Generic[_R_co]):
    """A request, whose type parameter is its response.

    Attributes:
        API_KEY: The number of the API.
        name: The request's name in Kafka's protocol.
        min_version: The oldest version that the schema has.
        max_version: The newest version that this client knows. In later versions fields have another meaning, or need
            values that callers lack, such as topic ids in place of names.
        flexible_from: The first flexible version (KIP-482); above `max_version` if there is none.
    """

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]
    _response: ClassVar[type[Structure]]

    def __init_subclass__(cls, *, api: int, versions: tuple[int, int], flexible_from: int | None = None) -> None:
        cls.API_KEY, cls.name = api, cls.__name__
        cls.min_version, cls.max_version = versions
        cls.flexible_from = versions[1] + 1 if flexible_from is None else flexible_from
        (cls._response,) = get_args(cls.__dict__["__orig_bases__"][0])

    @classmethod
    def decode_response(cls, reader: Reader, version: int) -> _R_co:
        """Read the response without its header; see `decode`."""
        return cast("_R_co", cls._response.decode(reader, version))


def _set_constructor(structure: type[Structure]) -> Callable[..., None]:
    names = [*structure.FIELDS]
    lines = [f"def compiled({', '.join(['self', *names])}):", *(f" self.{name} = {name}" for name in names), " pass"]
    constructor = _compiled(structure, lines, {})
    constructor.__defaults__ = tuple([one.default for one in structure.FIELDS.values()])
    setattr(structure, "__init__", constructor)  # noqa: B010 - mypy allows no other way
    return constructor


@cache
def _reader(structure: type[Structure], version: int, flexible: bool) -> Callable[[Reader], object]:
    names: dict[str, object] = {"new": object.__new__, "structure": structure}
    plain, tagged = _of_version(structure, version)
    lines = ["def compiled(reader):", " made = new(structure)"]
    for name, one in structure.FIELDS.items():
        if name not in plain:
            names[f"default_{name}"] = one.default
            lines.append(f" made.{name} = default_{name}")
    lines += [f" {line}" for line in _read(plain, version, flexible, names)]
    if flexible and tagged:
        lines.append(" for tag in reader.tags():")
        for name, one in tagged.items():
            lines.append(f"  if tag == {one.tag}:")
            lines += [f"   {line}" for line in _read({name: one}, version, flexible, names)]
    elif flexible:
        lines.append(" reader.skip_tags()")
    return _compiled(structure, [*lines, " return made"], names)


@cache
def _writer(structure: type[Structure], version: int, flexible: bool) -> Callable[[Structure, Writer], None]:
    names: dict[str, object] = {"Writer": Writer}
    plain, tagged = _of_version(structure, version)
    lines = ["def compiled(self, writer):", *(f" {line}" for line in _write(plain, version, flexible, names))]
    if flexible:
        lines.append(" tags = []")
        for name, one in tagged.items():
            names[f"default_{name}"] = one.default
            lines += [f" if self.{name} != default_{name}:", "  outer, writer = writer, Writer(flexible=True)"]
            lines += [f"  {line}" for line in _write({name: one}, version, flexible, names)]
            lines += [f"  tags.append(({one.tag}, writer.written()))", "  writer = outer"]
        lines.append(" writer.tags(tags)")
    return _compiled(structure, [*lines, " pass"], names)


def _of_version(structure: type[Structure], version: int) -> tuple[dict[str, Field], dict[str, Field]]:
    """Return the fields of a version: plain fields in their order, tagged fields by number."""
    present = {name: one for name, one in structure.FIELDS.items() if one.since <= version <= one.until}
    tagged = sorted((one.tag, name) for name, one in present.items() if one.tag is not None)
    return {name: one for name, one in present.items() if one.tag is None}, {name: present[name] for _, name in tagged}


def _read(fields: Mapping[str, Field], version: int, flexible: bool, names: dict[str, object]) -> Iterator[str]:
    """Yield the lines of code that read these fields."""
    for layout, run in _runs(fields, names):
        if layout:
            yield f"{''.join(f'made.{name}, ' for name in run)}= reader.numbers({layout})"
            continue
        for name in run:
            kind, nullable, inner = fields[name].kind, fields[name].may_be_null(version), ""
            if kind.structure is not None:
                inner = f"read_{name}"
                names[inner] = _reader(kind.structure, version, flexible)
            if kind.method:
                yield f"made.{name} = reader.{'nullable_' if nullable else ''}{kind.method}({inner})"
            else:
                yield f"made.{name} = {inner}(reader){' if reader.int8() >= 0 else None' if nullable else ''}"


def _write(fields: Mapping[str, Field], version: int, flexible: bool, names: dict[str, object]) -> Iterator[str]:
    """Yield the lines of code that write these fields."""
    for layout, run in _runs(fields, names):
        if layout:
            yield f"writer.numbers({layout}, {', '.join(f'self.{name}' for name in run)})"
            continue
        for name in run:
            kind, nullable, inner, value = fields[name].kind, fields[name].may_be_null(version), "", f"self.{name}"
            if fields[name].null_since is not None and not nullable:
                yield f"if {value} is None: raise ValueError('{name} is null')"
            if kind.structure is not None:
                inner = f"write_{name}"
                names[inner] = _writer(kind.structure, version, flexible)
            if not kind.method:
                if nullable:
                    yield f"writer.int8(-1 if {value} is None else 1)"
                yield f"if {value} is not None: {inner}({value}, writer)"
            elif kind.is_array:
                null = f"writer.null_array() if {value} is None else " if nullable else ""
                yield f"{null}writer.{kind.method}({value}{inner and ', '}{inner})"
            else:
                yield f"writer.{'nullable_' if nullable else ''}{kind.method}({value})"


def _runs(fields: Mapping[str, Field], names: dict[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of consecutive fields, each time after the name of their `struct` layout (empty: no layout)."""
    for has_code, group in groupby(fields, lambda name: bool(fields[name].kind.code)):
        run = list(group)
        layout = f"layout_{run[0]}" if has_code else ""
        if layout:
            names[layout] = struct.Struct(">" + "".join(fields[name].kind.code for name in run))
        yield layout, run


def _compiled(structure: type[Structure], lines: Sequence[str], names: dict[str, object]) -> FunctionType:
    exec(compile("\n".join(lines), f"<{structure.__qualname__}>", "exec"), names)
    return cast("FunctionType", names["compiled"])
