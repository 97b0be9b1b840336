"""The kernel reads Avro values as Java's Avro does: random pairs of writer and reader schema, with random values.

Where a logical type changes, Java's Avro takes the reader's and the kernel converts or refuses: `test_native_meanings`.
"""

import pyarrow as pa
import pytest

from tests.differential.java_avro import ANOTHER_MEANING, RECURSION, Tally, compare, java, pair, plain
from tests.support.native import kernel

native = kernel()


def check(numbers: range) -> None:
    pairs, tally = [pair(i) for i in numbers], Tally()
    for one, answers in zip(pairs, java(pairs), strict=True):
        decoder = native.AvroDecoder(one.reader, framing="none", recursive_depth=RECURSION)
        try:
            decoder.add_writer_schema(0, one.writer)
        except ValueError as error:
            if ANOTHER_MEANING.search(str(error)):
                continue
            assert all("error" in answer for answer in answers), f"{one}: {error}: {answers}"
            tally.failed += len(answers)
            continue
        done = decoder.decode(pa.array(one.values, pa.binary()))
        column = pa.array(done)
        column.validate(full=True)
        compare(one, answers, plain(column), {row: message for row, _, message in done.bad}, tally)
    print(f"{len(pairs)} pairs: {tally}")
    assert tally.equal > 2 * len(pairs) and tally.failed > len(pairs) // 20


def test_some_pairs_of_schemas() -> None:
    check(range(300))


@pytest.mark.long
def test_ten_thousand_pairs_of_schemas() -> None:
    check(range(10_000))
