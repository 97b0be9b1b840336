"""A batch, a stream and ten mistakes through Spark Connect in local mode: prints what came of each, and the metrics.

python -m tests.apps.connect_app FOLDER SERVERS TOPIC
"""

import dataclasses
import json
import sys
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families as parse
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkagroup import Settings, StopListener, admin, metrics
from tests.mistakes.attempts import over_connect, session


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


def until_read(query: StreamingQuery) -> None:
    """Wait until the query is a member of its group."""
    deadline = time.monotonic() + 60
    while query.lastProgress is None:
        assert time.monotonic() < deadline, "waited 60 s in vain for a micro-batch"
        time.sleep(0.1)


def main(folder: str, servers: str, topic: str) -> None:
    spark = session(SparkSession.builder.remote("local[2]"))
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
    spark.streams.addListener(StopListener(spark))
    running_query = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/second").start()
    until_read(running_query)
    admin.stop(Settings({"bootstrap.servers": servers}), f"{topic}-group")
    print(f"ended {running_query.awaitTermination(60)} {running_query.exception()}", flush=True)
    admin.resume(Settings({"bootstrap.servers": servers}), f"{topic}-group")
    told = [dataclasses.astuple(row) for row in over_connect(spark, servers, topic)]
    print("mistakes " + json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
