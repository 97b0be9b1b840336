"""A Spark Connect client without this package: the server has it. Prints how many records a topic has.

python -m tests.apps.connect_client REMOTE SERVERS TOPIC
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OURS = ("kafkagroup", "kafka_source", "pyspark_kafkagroup", "assignors", "kafkagroup_native")


class Absent(MetaPathFinder):
    """Makes this process a client on which the package is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in OURS:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def main(remote: str, servers: str, topic: str) -> None:
    sys.meta_path.insert(0, Absent())
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    print(f"count {spark.read.format('kafkagroup').options(**options).load().count()}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
