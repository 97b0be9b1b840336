"""What the sink logs: KAFKAGROUP_LOG_LEVEL holds for Spark's Python processes that write and commit."""

import pytest

from tests.support.programs import run_python

# Writes a topic's records to another, as a batch and then as a stream.
PROGRAM = """
import sys
from tests.apps.streaming_app import session

servers, source, target, checkpoint = sys.argv[1:]
spark = session("local[2]")
read = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
write = {"kafka.bootstrap.servers": servers, "topic": target, "batch.rows": "5"}
batch = spark.read.format("kafkagroup").options(**read).load().select("value")
batch.write.format("kafkagroup").options(**write).mode("append").save()
rows = spark.readStream.format("kafkagroup").options(**read).load().select("value")
writer = rows.writeStream.format("kafkagroup").options(**write).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.mark.long
def test_the_sink_logs_at_the_level_of_the_environment(kafka, topic, tmp_path):
    source, target = topic("from", records=7), topic("to")
    arguments = ("-c", PROGRAM, kafka.bootstrap_servers, source, target, tmp_path)
    done = run_python(*arguments, seconds=400, environment={"KAFKAGROUP_LOG_LEVEL": "INFO"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARN kafka_source.options.validation: option batch.rows has no effect here and is ignored" in done.stderr
    assert "INFO kafka_source.sink.writer: write records=7" in done.stderr
    assert "INFO kafka_source.sink.writer: write batch=0 records=7" in done.stderr
