"""A program of an environment that is not activated, as an IDE, cron or systemd starts it: workers find the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import produce

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import kafkagroup

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
kafkagroup.register(spark)
rows = spark.read.format("kafkagroup").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
print("rows", rows.load().count())
"""


@pytest.mark.long
def test_register_is_enough_where_nothing_is_activated(
    kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic("orders", partitions=1)
    produce(kafka.bootstrap_servers, name, 7)
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME") or (str(Path(java).resolve().parents[1]) if java else "")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kafka.bootstrap_servers, name],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "JAVA_HOME": home, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "rows 7" in done.stdout, done.stderr[-3000:]
