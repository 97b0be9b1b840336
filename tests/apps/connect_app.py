"""A batch, a stream and ten mistakes through Spark Connect in local mode: prints what came of each, and the metrics.

python -m tests.apps.connect_app FOLDER SERVERS TOPIC
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families as parse
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkagroup import metrics

# What a user sets beside the broker, for a read and for a write of two columns.
READS = {
    "no prefix": {"group.id": "billing"},
    "misspelt": {"startingOffset": "earliest"},
    "two selections": {"subscribePattern": "a.*"},
    "a wrong number": {"maxOffsetsPerTrigger": "10k"},
    "no mechanism": {"kafka.security.protocol": "SASL_SSL"},
    "not JSON": {"startingOffsets": "first"},
    "a missing topic": {"subscribe": "nowhere"},
    "a missing partition": {"subscribe": "", "assign": '{"TOPIC":[0,9]}'},
}
WRITES = {"a wrong name": {"topic": "no such topic!"}, "a wrong column": {"topic": "TOPIC"}}


def scrape(address: str | None, name: str) -> float | None:
    """The sum of a metric's series, as Prometheus gets it."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = parse(answer.read().decode())
    values = [sample.value for family in families for sample in family.samples if sample.name == name]
    return sum(values) if values else None


def until_ended(running: metrics.Metrics) -> None:
    """Wait until the listener has heard of the query's end: the client gets events of the server a little later."""
    deadline = time.monotonic() + 60
    while not scrape(running.prometheus_address, "kafkagroup_query_terminations_total"):
        assert time.monotonic() < deadline, "waited 60 s in vain for the end of the query"
        time.sleep(0.1)


def mistakes(spark: SparkSession, servers: str, topic: str) -> dict[str, str]:
    """Return the error of each mistake as the client has it, without the JVM's frames."""
    told = {}
    rows = spark.range(1)
    for name, given in {**READS, **WRITES}.items():
        options = {"kafka.bootstrap.servers": servers, **({"subscribe": topic} if name in READS else {}), **given}
        named = {key: text.replace("TOPIC", topic) for key, text in options.items() if text}
        try:
            if name in READS:
                spark.read.format("kafkagroup").options(**named).load().collect()
            else:
                frame = rows.selectExpr("id AS value" if "column" in name else "CAST(id AS STRING) AS value")
                frame.write.format("kafkagroup").options(**named).mode("append").save()
        except PySparkException as error:
            told[name] = str(error).partition("JVM stacktrace:")[0]
    return told


def main(folder: str, servers: str, topic: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Makes Spark bind a free port instead of 15002, and the client find it.
    os.environ["SPARK_TESTING"] = "1"
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.group.id": f"{topic}-group"}
    batch = spark.read.format("kafkagroup").options(**options).load().count()
    frame = spark.readStream.format("kafkagroup").options(startingOffsets="earliest", **options).load()
    # The client's process listens, and serves the figures.
    running = metrics.start(spark, prometheus="127.0.0.1:0", file=f"{folder}/samples.jsonl")
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    print(f"batch {batch} stream {spark.read.parquet(f'{folder}/out').count()}", flush=True)
    until_ended(running)
    rows = scrape(running.prometheus_address, "kafkagroup_query_input_rows_total")
    rebalances = scrape(running.prometheus_address, "kafkagroup_consumer_rebalances_total")
    running.close()
    kept = metrics.read_samples(f"{folder}/samples.jsonl")
    groups = sorted({one.group or "" for one in kept})
    print(
        f"scraped {rows:.0f} rebalances {rebalances:.0f} kept {sum(one.rows for one in kept)} of {groups}", flush=True
    )
    print("mistakes " + json.dumps(mistakes(spark, servers, topic)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
