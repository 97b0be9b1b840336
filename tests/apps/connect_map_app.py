"""Random functions, a stream of a group and a module that is sent, through Spark Connect in local mode.

python -m tests.apps.connect_map_app FOLDER SERVERS TOPIC EXAMPLES
"""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import kafkagroup
from tests.mistakes.attempts import session
from tests.support.random_functions import RandomFunction, compare, functions

SENT = """
import kafkagroup
import pyarrow as pa

@kafkagroup.arrow_function
def offsets(batches):
    for batch in batches:
        yield pa.record_batch({"offset": batch["offset"]})
"""


def main(folder: str, servers: str, topic: str, examples: str) -> None:
    spark = session(SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "Asia/Tokyo"))
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    compared = 0

    @settings(max_examples=int(examples), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(functions, st.booleans(), st.sampled_from(["native", "librdkafka"]))
    def same_rows(function: RandomFunction, stream: bool, engine: str) -> None:
        nonlocal compared
        compare(spark, {**options, "engine": engine}, function, stream=stream)
        compared += 1

    same_rows()
    print(f"compared {compared}", flush=True)

    archive, module = Path(folder, "in_an_archive.zip"), Path(folder, "sent_by_connect.py")
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("in_an_archive.py", SENT)
    module.write_text("from in_an_archive import offsets")
    spark.addArtifacts(str(archive), str(module), pyfile=True)

    def by_import(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from sent_by_connect import offsets  # type: ignore[import-not-found]

        yield from offsets(batches)

    reading = spark.read.options(**options)
    frame = kafkagroup.map_in_arrow(reading, by_import, "offset bigint", columns=["offset"])
    named = spark.read.format("kafkagroup").options(**options).option("map.function", "sent_by_connect:offsets")
    print(f"sent {frame.count()} named {named.schema('offset bigint').load().count()}", flush=True)
    print(f"after {len(reading.load().columns)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
