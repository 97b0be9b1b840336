"""Batches are sized by rows and bytes, large values fit, and what unpacks without end is stopped."""

import threading
import tracemalloc

import pyarrow as pa
import pytest

from tests.support.native import kernel, lets_threads_run
from tests.unit.native.batches import CODECS, PARTITION, TOPIC, Row, batch, decode

kafkagroup_native = kernel()

COMPRESSED = sorted(name for name in CODECS if name != "none")


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_batches_keep_to_their_rows_and_bytes(codec):
    rows = [Row(i, b"%05d" % i * 20) for i in range(1000)]
    data = batch(rows[:700], codec=codec) + batch(rows[700:], codec=codec)
    by_rows = decode(data, builder={"batch_rows": 64})
    assert by_rows.rows == rows and [part.num_rows for part in by_rows.batches] == [64] * 15 + [40]
    by_bytes = decode(data, builder={"batch_bytes": 10_000})
    assert by_bytes.rows == rows
    assert all(part.nbytes <= 10_000 + 100 for part in by_bytes.batches)
    assert all(part.nbytes > 9_000 for part in by_bytes.batches[:-1])


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_values_larger_than_a_batch_come_alone(codec):
    rows = [Row(0, b"small"), Row(1, b"x" * 3_000_000), Row(2, b"y" * 2_000_000), Row(3, b"small"), Row(4, b"small")]
    decoded = decode(batch(rows, codec=codec), builder={"batch_bytes": 1_000_000})
    assert decoded.rows == rows and [part.num_rows for part in decoded.batches] == [1, 1, 1, 2]


def test_a_full_builder_keeps_its_rows_for_the_next_record_set():
    builder = kafkagroup_native.BatchBuilder(["offset"], batch_rows=2)
    first = kafkagroup_native.RecordSet(batch([Row(0), Row(1)]), TOPIC, PARTITION)
    second = kafkagroup_native.RecordSet(batch([Row(2)]), TOPIC, PARTITION)
    assert builder.append(first) is False and first.done
    assert builder.append(second) is True and second.next_offset == 0 and builder.num_rows == 2
    assert pa.record_batch(builder.take()).column("offset").to_pylist() == [0, 1]
    assert builder.append(second) is False
    assert pa.record_batch(builder.take()).column("offset").to_pylist() == [2]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused(codec):
    data = batch([Row(0)]) + batch([Row(1, bytes(4_000_000))], codec=codec)
    decoded = decode(data, builder={"max_unpacked_bytes": 3_999_999})
    assert isinstance(decoded.error, kafkagroup_native.BatchTooLarge)
    assert decoded.error.offset == 1 and "max_unpacked_bytes" in decoded.error.reason
    assert len(decoded.rows) == 1
    assert decode(data, builder={"max_unpacked_bytes": 4_100_000}).error is None


def test_a_batch_lives_as_long_as_arrow_needs_it():
    builder = kafkagroup_native.BatchBuilder(["value", ("key", "string")])
    values = []
    for i in range(50):
        builder.append(kafkagroup_native.RecordSet(batch([Row(i, b"%d" % i * 100, b"k")]), TOPIC, PARTITION))
        taken = builder.take()
        values.append((pa.record_batch(taken).column("value"), pa.record_batch(taken).column("value")))
        del taken
    del builder
    for i, (first, second) in enumerate(values):
        assert first.equals(second) and first.to_pylist() == [b"%d" % i * 100]


def test_decoding_lets_other_threads_run():
    rows = [Row(i, bytes(1000)) for i in range(20_000)]
    data = batch(rows, codec="gzip")

    def decode() -> None:
        builder = kafkagroup_native.BatchBuilder(["value"], batch_rows=1 << 20, batch_bytes=1 << 30)
        builder.append(kafkagroup_native.RecordSet(data, TOPIC, PARTITION))

    assert lets_threads_run(decode)


def test_memory_does_not_grow_with_what_was_read():
    data = batch([Row(i, bytes(1000)) for i in range(1000)], codec="lz4")
    builder = kafkagroup_native.BatchBuilder(["value"], batch_rows=500)

    def read(times: int) -> int:
        for _ in range(times):
            records = kafkagroup_native.RecordSet(data, TOPIC, PARTITION)
            while builder.append(records):
                pa.record_batch(builder.take())
        pa.record_batch(builder.take())
        return resident()

    before = read(50)
    assert read(500) - before < 20 << 20


def resident() -> int:
    """This process's resident bytes; on systems without /proc, Python's own."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 4096
    except FileNotFoundError:
        return tracemalloc.get_traced_memory()[0]
