"""Counts the records of a topic on a cluster whose executors get this package from an archive.

spark-submit … recipe_app.py SERVERS TOPIC GROUP

It imports nothing of the tests: it runs in the environment of the archive.
"""

import sys

from pyspark.sql import SparkSession

from kafkagroup.doctor import examine


def main(servers: str, topic: str, group: str) -> None:
    spark = SparkSession.builder.appName("recipe").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.group.id": group}
    frame = spark.read.format("kafkagroup").options(**options).load()
    print(f"count {frame.count()}", flush=True)
    for finding in examine({"bootstrap.servers": servers}, spark=spark):
        if finding.name.startswith("executor") or finding.state == "fail":
            print(f"finding {finding}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
