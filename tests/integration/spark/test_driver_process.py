"""Processes beside the driver end with it, and its reads find each other: both need the id of its process."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from kafkagroup import arrow
from tests.apps.driver_of_planner import seen_and_real
from tests.apps.process import ROOT, spark_app
from tests.support.records import produce
from tests.support.waiting import wait_until


def test_a_planner_that_sparks_daemon_has_forked_knows_its_driver(spark):
    seen, real = seen_and_real(spark)
    assert seen == real


@pytest.mark.long
def test_a_planner_that_the_driver_has_started_itself_knows_its_driver():
    command = [sys.executable, "-m", "tests.apps.driver_of_planner", "false"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    seen, real = done.stdout.split()[-2:]
    assert seen == real


@pytest.mark.long
@pytest.mark.parametrize("app", ["batch_app", "copying_app"])
def test_a_read_and_a_write_warn_once_each_that_librdkafka_serves(kafka, app, tmp_path):
    kernel = tmp_path / "packages" / "kafkagroup_native"
    kernel.mkdir(parents=True)
    (kernel / "__init__.py").write_text('__version__ = "0.0.9"')
    path = f"{kernel.parent}{os.pathsep}{ROOT}"
    source, sink = (kafka.create_topic(f"warned-{app}-{end}", partitions=4) for end in ("in", "out"))
    produce(kafka.bootstrap_servers, source, 1000)
    # A pattern of the tasks of batch_app that wait: none.
    (tmp_path / "hold").touch()
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    common = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    reads = {**common, "subscribe": source, "kafka.group.id": source, "startingOffsets": "earliest"}
    writes = {**common, "topic": sink}
    with spark_app(app, tmp_path, "local[2]", reads, writes, environment={"PYTHONPATH": path}) as running:
        wait_until(
            lambda: pa.table(arrow.read(sink, servers)).num_rows == 1000, "all records to be written", seconds=120
        )
    said = [line for line in running.log.read_text().splitlines() if "the slower librdkafka engine serves" in line]
    assert len(said) == 2, said
