"""Speed of the decoding of Avro, Protobuf and JSON values into typed columns, on one core, without Kafka or Spark.

`./run bench native_values [--records 4000000] [--rounds 5]` prints the machine, and the median records/s of a core with
the slowest and fastest round. The cases are one Avro schema, two schema ids in turns, 3 of the 10 fields, and the same
records as Protobuf and JSON. A record has 10 fields, and about 80 bytes as Avro.
"""

import io
import json
import random
import statistics
import struct
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import fastavro
import pyarrow as pa
from kafkagroup_native import AvroDecoder, JsonDecoder, ProtobufDecoder

from benchmarks._command import begin, parser_of

ROWS = 100_000
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "product", "type": "string"},
    {"name": "amount", "type": "double"},
    {"name": "quantity", "type": "int"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT", "BACK"]}},
    {"name": "country", "type": ["null", "string"], "default": None},
    {"name": "gift", "type": "boolean", "default": False},
    {"name": "note", "type": "string"},
]
READER = {"type": "record", "name": "Order", "fields": FIELDS}
# This schema lacks a field with a default, has a field that the reader lacks, and has the fields in another order.
OLDER = {
    "type": "record",
    "name": "Order",
    "fields": [*FIELDS[5:8], {"name": "coupon", "type": ["null", "string"]}, *FIELDS[:5], FIELDS[9]],
}


# The fields with the types that the Avro decoder returns.
COLUMN = pa.struct(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("product", pa.string()),
        ("amount", pa.float64()),
        ("quantity", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("status", pa.string()),
        ("country", pa.string()),
        ("gift", pa.bool_()),
        ("note", pa.string()),
    ]
)
FEW = ("id", "amount", "at")
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  enum Status { NEW = 0; PAID = 1; SENT = 2; BACK = 3; }
  int64 id = 1; string customer = 2; string product = 3; double amount = 4; int32 quantity = 5;
  google.protobuf.Timestamp at = 6; Status status = 7; optional string country = 8; bool gift = 9; string note = 10;
}
"""


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: the writer schemas, whose ids alternate, and the fields that are decoded.

    Attributes:
        name: Its name in the table.
        writers: The Avro schemas; empty: the values have another format.
        fields: The decoded fields; None: all.
        is_protobuf: Whether the values are Protobuf; else values without a schema are JSON.
    """

    name: str
    writers: tuple[dict[str, Any], ...] = ()
    fields: tuple[str, ...] | None = None
    is_protobuf: bool = False

    def decoder(self) -> AvroDecoder | JsonDecoder | ProtobufDecoder:
        """Return a decoder that knows the writer schemas."""
        wanted = None if self.fields is None else pa.struct([COLUMN.field(name) for name in self.fields])
        if self.is_protobuf:
            protobuf = ProtobufDecoder(PROTO, wanted=wanted)
            protobuf.add_writer_schema(0, PROTO)
            return protobuf
        if not self.writers:
            return JsonDecoder(wanted or COLUMN)
        decoder = AvroDecoder(json.dumps(READER), wanted=wanted)
        for number, writer in enumerate(self.writers):
            decoder.add_writer_schema(number, json.dumps(writer))
        return decoder


LOADS = (
    Load("Avro", (READER,)),
    Load("Avro, two ids in turns", (READER, OLDER)),
    Load("Avro, 3 of 10 fields", (READER,), FEW),
    Load("Protobuf", is_protobuf=True),
    Load("Protobuf, 3 of 10 fields", fields=FEW, is_protobuf=True),
    Load("JSON"),
    Load("JSON, 3 of 10 fields", fields=FEW),
)


def order(rng: random.Random) -> dict[str, Any]:
    return {
        "id": rng.randrange(10**9),
        "customer": f"customer-{rng.randrange(10**6):06}",
        "product": f"product-{rng.randrange(10**4):04}",
        "amount": round(rng.uniform(1, 500), 2),
        "quantity": rng.randint(1, 90),
        "at": 1_760_000_000_000 + rng.randrange(10**9),
        "status": rng.choice(("NEW", "PAID", "SENT", "BACK")),
        "country": rng.choice((None, "DE", "FR", "US")),
        "gift": rng.random() < 0.1,
        "note": "leave it at the door, please"[: rng.randint(10, 28)],
        "coupon": None,
    }


def as_json(order: dict[str, Any]) -> bytes:
    at = datetime.fromtimestamp(order["at"] / 1000, timezone.utc).isoformat(timespec="milliseconds")
    fields = {name: order[name] for name in COLUMN.names} | {"at": at}
    return json.dumps(fields, separators=(",", ":")).encode()


def varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, 63, 7) if value >> shift or not shift]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def as_protobuf(order: dict[str, Any]) -> bytes:
    """Return a serializer's bytes, with Confluent's framing of the first message, and without fields that are 0."""
    seconds, millis = divmod(order["at"], 1000)
    at = b"\x08" + varint(seconds) + b"\x10" + varint(millis * 1_000_000)
    status = ("NEW", "PAID", "SENT", "BACK").index(order["status"])
    texts = {2: order["customer"], 3: order["product"], 8: order["country"], 10: order["note"]}
    fields = {number: varint(number << 3 | 2) + varint(len(one)) + one.encode() for number, one in texts.items() if one}
    numbers = {1: order["id"], 5: order["quantity"], 7: status, 9: int(order["gift"])}
    fields |= {number: varint(number << 3) + varint(one) for number, one in numbers.items() if one}
    fields[4], fields[6] = b"\x21" + struct.pack("<d", order["amount"]), b"\x32" + varint(len(at)) + at
    return b"\0\0\0\0\0\0" + b"".join(fields[number] for number in sorted(fields))


def values(load: Load) -> pa.Array:
    """Return the values of one batch; values with a schema have Confluent's framing."""
    rng = random.Random(7)
    if load.is_protobuf:
        return pa.array([as_protobuf(order(rng)) for _ in range(ROWS)], pa.binary())
    if not load.writers:
        return pa.array([as_json(order(rng)) for _ in range(ROWS)], pa.binary())
    schemas = [fastavro.parse_schema(json.loads(json.dumps(writer))) for writer in load.writers]
    framed = []
    for row in range(ROWS):
        number = row % len(schemas)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schemas[number], order(rng))
        framed.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
    return pa.array(framed, pa.binary())


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--records", type=int, default=4_000_000, help="records of a round")
    given = begin(parser, f"{'values':>26} {'bytes':>6} {'M records/s':>12} {'spread':>14} {'MB/s':>7}")
    for load in LOADS:
        decoder = load.decoder()
        batch = values(load)
        decoded = decoder.decode(batch)
        if decoded.bad:
            raise SystemExit(f"{load.name}: {decoded.bad[0]}")
        batches = max(1, given.records // ROWS)
        rates = []
        for _ in range(given.rounds):
            # CPU time depends less on other processes' load than elapsed time.
            start = time.process_time()
            for _ in range(batches):
                pa.array(decoder.decode(batch))
            rates.append(batches * ROWS / (time.process_time() - start) / 1e6)
        median, size = statistics.median(rates), batch.nbytes / ROWS - 4
        spread = f"{min(rates):.1f}-{max(rates):.1f}"
        print(f"{load.name:>26} {size:>6.0f} {median:>12.2f} {spread:>14} {median * size:>7.0f}")


if __name__ == "__main__":
    main()
