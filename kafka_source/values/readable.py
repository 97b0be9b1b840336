"""Values as readable JSON (`peek`), each decoded by the schema with which it was written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_source.client_config import Settings
from kafka_source.values.header_ids import parse_header
from kafka_source.values.json_values import json_value
from kafka_source.values.registry import Unusable, registry_of

if TYPE_CHECKING:
    from kafkagroup_native import AvroDecoder, ProtobufDecoder

# The frame of a value whose schema has no number.
_FRAME = bytes(5)

# The depth to which a record is shown within itself.
_RECURSIVE_DEPTH = 5


@dataclass(frozen=True, slots=True)
class Readable:
    """A decoded value.

    Attributes:
        json: The value as JSON.
        message: The full name of its Protobuf message; None: Avro.
    """

    json: str
    message: str | None


class ReadableValues:
    """Decodes values one by one, by the schema ids that Confluent's serializers write.

    Args:
        registry: The settings of the registry's client, without their prefix.

    Raises:
        OptionError: A setting is missing or wrong.
    """

    def __init__(self, registry: Settings) -> None:
        self._registry = registry_of(registry)
        self._decoders: dict[tuple[int | str, str | None], AvroDecoder | ProtobufDecoder | None] = {}

    def of_header(self, header: bytes | None, data: bytes) -> Readable | None:
        """Return a value whose schema a header names; None: the header names no schema. Otherwise as `of_frame`.

        Args:
            header: The value of the header; see `header_ids`.
            data: The value, without a frame.
        """
        found = parse_header(header)
        if found is None:
            return None
        guid, indexes = found
        return self._readable(guid, _FRAME + indexes + data)

    def of_frame(self, schema_id: int, data: bytes) -> Readable | None:
        """Return a value; None if its bytes do not fit this schema, or the registry lacks the schema.

        Raises:
            AuthenticationError: The registry refuses the credentials.
            InvalidConfigurationError: The schema has rules that would have to change the value.
            RetriableError: The registry does not answer.
        """
        return self._readable(schema_id, data)

    def knows(self, schema_id: int) -> bool:
        """Return whether the registry has a schema with this id; raise the errors of `of_frame`."""
        return not isinstance(self._registry.by_id(schema_id), Unusable)

    def _readable(self, schema_id: int | str, data: bytes) -> Readable | None:
        from kafkagroup_native import ProtobufDecoder

        decoder, message = self._decoder(schema_id), None
        if isinstance(decoder, ProtobufDecoder):
            try:
                message = decoder.message_of(data)
            except ValueError:
                return None
            decoder = self._decoder(schema_id, message)
        if decoder is None:
            return None
        decoded = decoder.decode(pa.array([data], pa.binary()))
        if decoded.bad:
            return None
        return Readable(json.dumps(json_value(pa.array(decoded)[0]), ensure_ascii=False), message)

    def _decoder(self, schema_id: int | str, message: str | None = None) -> AvroDecoder | ProtobufDecoder | None:
        key = schema_id, message
        if key not in self._decoders:
            self._decoders[key] = self._new_decoder(schema_id, message)
        return self._decoders[key]

    def _new_decoder(self, schema_id: int | str, message: str | None) -> AvroDecoder | ProtobufDecoder | None:
        from kafkagroup_native import AvroDecoder, ProtobufDecoder

        found = self._registry.by_ids([schema_id], patience=0)[schema_id]
        if isinstance(found, Unusable) or found.kind not in ("AVRO", "PROTOBUF"):
            return None
        found.check(found.kind)
        decoder: AvroDecoder | ProtobufDecoder
        try:
            if found.kind == "AVRO":
                decoder = AvroDecoder(found.text, framing="confluent", recursive_depth=_RECURSIVE_DEPTH)
            else:
                imports = dict(found.imports)
                decoder = ProtobufDecoder(
                    found.text, imports=imports, message=message, recursive_depth=_RECURSIVE_DEPTH
                )
            decoder.add_writer_schema(schema_id if isinstance(schema_id, int) else 0, found.text)
        except ValueError:
            return None
        return decoder
