"""A Spark application that counts records by key, as docs/guides/replace-a-query-with-state.md does.

    python -m tests.apps.counting_app FOLDER MASTER '{"subscribe": …}' '{"out": …, "version": …}'

The key is the number in the value, modulo 7. It writes to `out/shadow` until the file `out/switch-VERSION` is there,
and then to `out/live`. It prints what `streaming_app` prints.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from kafkagroup import StopListener
from tests.apps.streaming_app import session, tell


def main(folder: str, master: str, source: str, target: str) -> None:
    spark = session(master)
    spark.streams.addListener(StopListener(spark))
    out, version = (json.loads(target)[name] for name in ("out", "version"))

    def write(batch: DataFrame, number: int) -> None:
        place = "live" if Path(out, f"switch-{version}").exists() else "shadow"
        batch.write.mode("overwrite").parquet(f"{out}/{place}/{version}-{number}")

    records = spark.readStream.format("kafkagroup").options(**json.loads(source)).load()
    keys = records.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) % 7 AS key")
    writer = keys.groupBy("key").count().writeStream.outputMode("update").foreachBatch(write)
    tell(writer.option("checkpointLocation", f"{folder}/checkpoint").start())
    spark.stop()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
