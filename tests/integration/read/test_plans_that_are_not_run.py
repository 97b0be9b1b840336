"""Looking at a DataFrame of a group, without an action, lets nobody join the group."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.records import reader


def _explain_a_view(frame: DataFrame) -> None:
    frame.createOrReplaceTempView("not_read")
    frame.sparkSession.sql("SELECT count(*) FROM not_read WHERE offset > 5")
    frame.sparkSession.sql("EXPLAIN SELECT * FROM not_read").collect()


def _explain(frame: DataFrame) -> None:
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    frame.where("offset > 5").join(frame.limit(3), "key").groupBy("key").count().explain()


def _find_nothing_to_read(frame: DataFrame) -> None:
    frame.limit(0).collect()
    frame.where("1 = 0").collect()
    frame.join(frame.limit(0), "key").count()


LOOKS: dict[str, Callable[[DataFrame], object]] = {
    "schema": lambda frame: (frame.printSchema(), frame.columns, repr(frame), frame.isStreaming, frame.inputFiles()),
    "explain": _explain,
    "view": _explain_a_view,
    "cache": lambda frame: frame.cache().unpersist(),
    "nothing": _find_nothing_to_read,
}


@pytest.mark.parametrize("commit", ["none", "task"])
def test_a_look_at_a_plan_joins_no_group(spark: SparkSession, kafka, topic, groups, commit):
    name = topic("looked-at", partitions=3, records=30)
    for what, look in LOOKS.items():
        look(reader(spark, kafka, name, kafka_group_id=f"{name}-{what}", commit=commit).load())
    assert not [group for group in groups.states() if group.startswith(name)]


def test_an_rdd_is_a_plan_that_joins(spark: SparkSession, kafka, topic, group, groups):
    # Spark plans when the RDD is asked for, and does not tell whether anybody runs it.
    name = topic("looked-at", partitions=3, records=30)
    frame = reader(spark, kafka, name, kafka_group_id=group).load()
    rdd = frame.rdd
    assert groups.states()[group]
    assert groups.describe(group).members == ()
    assert rdd.count() == 30
