"""Speed of the decoding of Avro and JSON values into typed columns, on one core, without Kafka or Spark.

`./run bench native_values [--records 4000000] [--rounds 5]` prints the machine and, for one Avro schema, for two schema
ids record by record, for 3 of the 10 fields, and for the same as JSON, the median records/s of a core and the slowest
and fastest round. The records have 10 fields, and about 80 bytes as Avro.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import fastavro
import pyarrow as pa
from kafkagroup_native import AvroDecoder, JsonDecoder

from benchmarks._machine import describe_machine

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
# Without a field that has a default, and with one that the reader does not have, in another order.
OLDER = {
    "type": "record",
    "name": "Order",
    "fields": [*FIELDS[5:8], {"name": "coupon", "type": ["null", "string"]}, *FIELDS[:5], FIELDS[9]],
}


# What the Avro decoder makes of the fields.
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


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: the writer schemas, whose ids alternate, and the fields that are decoded.

    Attributes:
        name: What the table calls it.
        writers: The Avro schemas; none: the values are JSON.
        fields: None: all.
    """

    name: str
    writers: tuple[dict[str, Any], ...] = ()
    fields: tuple[str, ...] | None = None

    def decoder(self) -> AvroDecoder | JsonDecoder:
        """Return a decoder that knows the writer schemas."""
        if not self.writers:
            return JsonDecoder(pa.struct([COLUMN.field(name) for name in self.fields or COLUMN.names]))
        decoder = AvroDecoder(json.dumps(READER), fields=self.fields)
        for number, writer in enumerate(self.writers):
            decoder.add_writer_schema(number, json.dumps(writer))
        return decoder


LOADS = (
    Load("Avro", (READER,)),
    Load("Avro, two ids in turns", (READER, OLDER)),
    Load("Avro, 3 of 10 fields", (READER,), FEW),
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


def values(load: Load) -> pa.Array:
    """Return the values of one batch; those of Avro are framed as Confluent's serializers do it."""
    rng = random.Random(7)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000, help="records of a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(describe_machine())
    print(f"{'values':>22} {'bytes':>6} {'M records/s':>12} {'spread':>14} {'MB/s':>7}")
    for load in LOADS:
        decoder = load.decoder()
        batch = values(load)
        decoded = decoder.decode(batch)
        if decoded.bad:
            raise SystemExit(f"{load.name}: {decoded.bad[0]}")
        batches = max(1, arguments.records // ROWS)
        rates = []
        for _ in range(arguments.rounds):
            # CPU time depends less on other processes' load than elapsed time.
            start = time.process_time()
            for _ in range(batches):
                pa.array(decoder.decode(batch))
            rates.append(batches * ROWS / (time.process_time() - start) / 1e6)
        median, size = statistics.median(rates), batch.nbytes / ROWS - 4
        spread = f"{min(rates):.1f}-{max(rates):.1f}"
        print(f"{load.name:>22} {size:>6.0f} {median:>12.2f} {spread:>14} {median * size:>7.0f}")


if __name__ == "__main__":
    main()
