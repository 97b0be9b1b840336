"""A Spark application that copies a topic into another, each record into the partition of its number.

    python -m tests.apps.copying_app FOLDER MASTER '{"subscribe": …}' '{"topic": …}'

It prints what `streaming_app` prints.
"""

from __future__ import annotations

import json
import sys

from tests.apps.streaming_app import session, tell


def main(folder: str, master: str, source: str, sink: str) -> None:
    spark = session(master)
    query = (
        spark.readStream.format("kafkagroup")
        .options(**json.loads(source))
        .load()
        .select("key", "value", "partition")
        .writeStream.format("kafkagroup")
        .options(**json.loads(sink))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    tell(query)
    spark.stop()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
