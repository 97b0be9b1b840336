"""The type of JSON values, from `value.schema` or `key.schema`: a type of Spark's `from_json`, or a JSON Schema.

Spark parses such texts in the JVM, but the Python processes that plan a query have no JVM.
"""

import json
import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_source.errors import OptionError
from kafka_source.spark_types import arrow_type
from kafka_source.values.json_schema import SchemaError, json_schema_type

_WORDS: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_SCALARS = (*{type(kind) for kind in _WORDS.values()}, DecimalType)
_DECIMALS = ("decimal", "dec", "numeric")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|(\w+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:])|(\S))")
_MAX_DIGITS = 38
# Arrow's C++ library imports no type that is nested more deeply.
_MAX_DEPTH = 64


def json_column_type(text: str, option: str = "value.schema") -> pa.DataType:
    """Return the Arrow type of a column of JSON values, all of which may be null.

    Args:
        text: Fields (`id bigint, tags array<string>`), a type (`array<double>`), `StructType.json()`, or a JSON Schema.
        option: The option, for errors.

    Raises:
        OptionError: The text is no such type, or JSON values cannot have it.
    """
    given = text.lstrip().startswith("{")
    try:
        if given and json.loads(text).get("type") != "struct":
            return json_schema_type(text)
        kind = StructType.fromJson(json.loads(text)) if given else _Parser(text).whole()
        return arrow_type(_nullable(kind, 0))
    except (_NoTypeError, SchemaError) as problem:
        reason = str(problem)
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = "it is no schema as JSON"
    takes = f"the columns of the JSON values, as in `id bigint, tags array<string>`; {reason}"
    raise OptionError(option, text, takes)


class _NoTypeError(Exception):
    """A text is no type, or JSON values cannot have the type."""


def _nullable(kind: DataType, depth: int) -> DataType:
    if depth > _MAX_DEPTH:
        raise _NoTypeError(f"its types are nested more than {_MAX_DEPTH} deep")
    if isinstance(kind, StructType):
        names = kind.fieldNames()
        if again := sorted({name for name in names if names.count(name) > 1}):
            raise _NoTypeError(f"it has the field {again[0]} twice")
        if not names:
            raise _NoTypeError("it has a struct without fields")
        return StructType([StructField(field.name, _nullable(field.dataType, depth + 1)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType, depth + 1))
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise _NoTypeError("the keys of a map are strings")
        # Two levels deeper, because the values of a map are in the structs of its entries.
        return MapType(StringType(), _nullable(kind.valueType, depth + 2))
    if not isinstance(kind, _SCALARS):
        raise _NoTypeError(f"JSON values cannot be read as {kind.simpleString()}; use int or string, and cast")
    return kind


class _Parser:
    """A parser of Spark's DDL of types."""

    def __init__(self, text: str) -> None:
        self._tokens: Sequence[str] = [found.group(found.lastindex or 0) for found in _TOKEN.finditer(text)]
        self._at = 0

    def whole(self) -> DataType:
        """Return the type that the text names, or a struct if the text lists fields."""
        try:
            kind = self._type(0)
        except _NoTypeError:
            kind = None
        if kind is not None and self._at == len(self._tokens):
            return kind
        self._at = 0
        fields = self._fields(0)
        if self._at < len(self._tokens):
            raise _NoTypeError(f"{self._next()} is not expected")
        return fields

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else "the end"

    def _skip(self, token: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at].lower() == token
        self._at += found
        return found

    def _need(self, token: str) -> None:
        if not self._skip(token):
            raise _NoTypeError(f"{token} is expected before {self._next()}")

    def _word(self, what: str) -> str:
        token = self._next()
        if self._at == len(self._tokens) or not re.fullmatch(r"\w+|`.+`", token, re.DOTALL):
            raise _NoTypeError(f"{what} is expected before {token}")
        self._at += 1
        return token

    def _fields(self, depth: int) -> StructType:
        fields = []
        while True:
            name = self._word("the name of a field")
            self._skip(":")
            kind = self._type(depth + 1)
            if self._skip("not"):
                self._need("null")
            if self._skip("comment"):
                self._at += 1
            quoted = name.startswith("`")
            fields.append(StructField(name[1:-1].replace("``", "`") if quoted else name, kind))
            if not self._skip(","):
                return StructType(fields)

    def _type(self, depth: int) -> DataType:
        if depth > _MAX_DEPTH:
            raise _NoTypeError(f"its types are nested more than {_MAX_DEPTH} deep")
        word = self._word("a type").lower()
        if word in _DECIMALS:
            return self._decimal()
        if word not in ("array", "map", "struct"):
            if word not in _WORDS:
                raise _NoTypeError(f"{word} is none of {', '.join((*_WORDS, 'decimal', 'array', 'map', 'struct'))}")
            return _WORDS[word]
        self._need("<")
        kind: DataType
        if word == "struct":
            kind = self._fields(depth)
        elif word == "array":
            kind = ArrayType(self._type(depth + 1))
        else:
            key = self._type(depth + 1)
            self._need(",")
            kind = MapType(key, self._type(depth + 1))
        self._need(">")
        return kind

    def _decimal(self) -> DecimalType:
        if not self._skip("("):
            return DecimalType()
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        self._need(")")
        if not scale <= precision <= _MAX_DIGITS or precision < 1:
            raise _NoTypeError(f"a decimal has 1 to {_MAX_DIGITS} digits, and its scale is at most its precision")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._word("a number")
        if not word.isdecimal():
            raise _NoTypeError(f"a number is expected instead of {word}")
        return int(word)
