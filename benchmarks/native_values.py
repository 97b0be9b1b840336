"""Speed of the decoding of Avro values into typed columns, on one core, without Kafka or Spark.

`./run bench native_values [--records 4000000] [--rounds 5]` prints the machine and, for one schema, for two schema ids
record by record, and for 3 of the 10 fields, the median records/s of a core and the slowest and fastest round. The
records have 10 fields and about 80 bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from kafkagroup_native import AvroDecoder

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


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: the writer schemas, whose ids alternate, and the fields that are decoded."""

    name: str
    writers: tuple[dict[str, Any], ...]
    fields: tuple[str, ...] | None = None


LOADS = (
    Load("one schema", (READER,)),
    Load("two ids in turns", (READER, OLDER)),
    Load("3 of 10 fields", (READER,), ("id", "amount", "at")),
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


def values(load: Load) -> pa.Array:
    """Return the values of one batch, framed as Confluent's serializers do it."""
    rng = random.Random(7)
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
    print(f"{'values':>18} {'bytes':>6} {'M records/s':>12} {'spread':>14} {'MB/s':>7}")
    for load in LOADS:
        decoder = AvroDecoder(json.dumps(READER), fields=load.fields)
        for number, writer in enumerate(load.writers):
            decoder.add_writer_schema(number, json.dumps(writer))
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
        print(f"{load.name:>18} {size:>6.0f} {median:>12.2f} {spread:>14} {median * size:>7.0f}")


if __name__ == "__main__":
    main()
