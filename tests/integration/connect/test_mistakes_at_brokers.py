"""Mistakes that only brokers can tell: as the page of mistakes says it, in at most ten lines of ours."""

import traceback
from typing import cast

import pytest
from pyspark.sql.types import BinaryType, StructType

from kafka_source.datasource import KafkaGroupSource
from kafka_source.errors import KafkaGroupError
from kafka_source.sink import writer
from kafkagroup.embedded import EmbeddedKafka
from tests.mistakes.catalog import BROKERS, MISTAKES, SINKS, At, How, Mistake, rows_of_page
from tests.support.records import Topic

VALUE = StructType().add("value", BinaryType())
# What the driver finds out in its plan, as Spark asks for it; not what takes seconds because no broker answers.
IN_PLAN = [
    one
    for one in MISTAKES
    if (one.section, one.at) in ((BROKERS, At.OPEN), (SINKS, At.OPEN))
    and one.how in (How.BATCH, How.WRITE)
    and one.typed.keys() & {"subscribe", "assign", "startingOffsets", "topic"}
]


@pytest.mark.parametrize("mistake", IN_PLAN, ids=lambda one: one.shown)
def test_the_answer_is_that_of_the_page(
    kafka: EmbeddedKafka, topic: Topic, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have a session of Spark.
    monkeypatch.setattr(writer, "is_driver_process", lambda: True)
    orders = topic("orders", partitions=2)
    given = {name: text.replace("orders", orders) for name, text in mistake.options.items()}
    source = KafkaGroupSource({**given, "kafka.bootstrap.servers": kafka.bootstrap_servers})
    with pytest.raises(KafkaGroupError) as caught:
        if mistake.how is How.WRITE:
            source.writer(VALUE, overwrite=False)
        else:
            list(source.reader(cast("StructType", source.schema())).partitions())
    (row,) = [row for row in rows_of_page() if (row.section, row.shown) == (mistake.section, mistake.shown)]
    assert str(caught.value).replace(orders, "orders") == row.sentence, "run: ./run python -m tests.mistakes.attempts"
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) <= 10, lines
