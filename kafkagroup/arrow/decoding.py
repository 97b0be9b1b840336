"""`decode_values`: decode the values of record batches, from `arrow.read` or in Spark's `mapInArrow`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from kafka_source.client_config import Settings
from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import kinds
from kafka_source.options.kinds import DecodedColumn, Mode
from kafkagroup.arrow.settings import SettingValue, text_of

_PLACE = ("topic", "partition", "offset")
_CORRUPT: Mapping[DecodedColumn, str] = {"value": "_corrupt_record", "key": "_corrupt_record_key"}


def decode_values(
    batches: Iterable[pa.RecordBatch],
    registry: Mapping[str, SettingValue],
    *,
    schema_id: int,
    message: str | None = None,
    mode: Mode = "FAILFAST",
    column: DecodedColumn = "value",
    max_decoded_bytes: int = kinds.DEFAULT_DECODED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with `value` decoded into the type of the registry's schema (Avro, Protobuf or JSON).

    A batch that is large after decoding is returned in parts.

    Args:
        batches: Records of Kafka with `value` as binary, and `topic`, `partition` and `offset` for errors. The column
            `headers` may name the schemas, as Confluent's newer serializers do.
        registry: The settings of the schema registry's client, such as `url` and `basic.auth.user.info`.
        schema_id: The id of the column's schema. Values of other schemas are resolved to this schema (Avro by its
            rules, Protobuf by field number, JSON by field name).
        message: The full name of the Protobuf message of the column; None: the first message of the schema.
        mode: `FAILFAST`: a bad value is an error. `PERMISSIVE`: a bad value is null, and its bytes are in another
            column, `_corrupt_record`. `DROPMALFORMED`: the row of a bad value is left out.
        column: `key` decodes the keys instead. Call twice to decode keys and values. Bad keys are in
            `_corrupt_record_key`.
        max_decoded_bytes: The limit of a decoded value's size; a larger value is bad.

    Raises:
        OptionError: A setting or an argument is wrong.
        InvalidConfigurationError: kafkagroup-native, the schema in the registry, or a column is missing.
        UnreadableRecordError: A value is bad, and `mode` is `FAILFAST`.
        AuthenticationError: The registry refuses the credentials.
        RetriableError: The registry does not answer.
    """
    check_value_kernel()
    # The kernel is loaded only for decoding.
    from kafka_source.values.decoding import ColumnDecoding, Decoding, decode
    from kafka_source.values.reader_schema import registered

    if mode not in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        raise OptionError("mode", mode, kinds.MODE.takes)
    if column not in _CORRUPT:
        raise OptionError("column", column, " or ".join(_CORRUPT))
    settings = Settings({name: text_of(name, value) for name, value in registry.items()})
    reader = registered(settings, schema_id, message, column)
    if not 1 <= max_decoded_bytes < 1 << 30:
        raise OptionError("max_decoded_bytes", str(max_decoded_bytes), kinds.DECODED_BYTES.takes)
    in_front = ColumnDecoding(
        reader, reader.column_type(), "confluent", _CORRUPT[column], settings, max_decoded_bytes=max_decoded_bytes
    )
    in_headers = replace(in_front, framing="confluent-header")
    for batch in batches:
        if missing := [name for name in (column, *_PLACE) if name not in batch.schema.names]:
            raise InvalidConfigurationError(
                f"Decoding needs the columns {column}, topic, partition and offset; the batch has no {missing[0]}."
            )
        how = in_headers if "headers" in batch.schema.names else in_front
        for rows, made in decode(batch, Decoding((how,), mode)):
            names = [*rows.schema.names, *(name for name in made if name not in rows.schema.names)]
            yield pa.record_batch([made[name] if name in made else rows.column(name) for name in names], names)
