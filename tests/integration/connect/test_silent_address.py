"""The first address of the brokers' name answers nothing: batches, streams, sinks and the command line work."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from kafkagroup import arrow
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.server_config import CLIENT, LOOPBACK, server_config
from tests.apps.process import spark_app
from tests.support.records import produce
from tests.support.silence import NAME, resolver, silence
from tests.support.waiting import wait_until

COUNT = 20
# Nothing that waits for the silent address gets an answer before the other limits are over.
LIMITS = {
    "kafka.socket.connection.setup.timeout.ms": "60000",
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "15000",
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.requires_native,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="the resolver is replaced by a library made here"
    ),
]


@dataclass
class Place:
    """A broker that is known by NAME only, and the variables of the processes that know that name."""

    kafka: EmbeddedKafka
    variables: dict[str, str]

    @property
    def servers(self) -> str:
        return f"{NAME}:{self.kafka.port(1)}"

    def values(self, topic: str) -> list[int]:
        table = pa.table(arrow.read(topic, {"bootstrap.servers": self.kafka.internal_bootstrap_servers}))
        return sorted(int(value.as_py()) for value in table["value"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    def by_name(*args, **named) -> dict[str, str]:
        config = server_config(*args, **named)
        advertised = config["advertised.listeners"].replace(f"{CLIENT}://{LOOPBACK}", f"{CLIENT}://{NAME}")
        return {**config, "advertised.listeners": advertised}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkagroup.embedded.cluster.server_config", by_name)
        with EmbeddedKafka() as kafka, silence(kafka.port(1)):
            yield Place(kafka, resolver(tmp_path_factory.mktemp("resolver")))


def test_the_command_line_shows_the_topics(place: Place) -> None:
    place.kafka.create_topic("shown", 1)
    command = [str(Path(sys.executable).with_name("kafkagroup")), "topics", "-b", place.servers]
    limits = [word for name, value in LIMITS.items() for word in ("-c", f"{name.removeprefix('kafka.')}={value}")]
    done = subprocess.run(
        [*command, *limits], env={**os.environ, **place.variables}, capture_output=True, text=True, timeout=120
    )
    assert "shown" in done.stdout, done.stderr


@pytest.mark.parametrize("app", ["batch_app", "copying_app"])
def test_spark_reads_commits_and_writes(place: Place, app: str, tmp_path: Path) -> None:
    source, sink = f"{app}-in", f"{app}-out"
    for topic in (source, sink):
        place.kafka.create_topic(topic, 2)
    produce(place.kafka.internal_bootstrap_servers, source, COUNT)
    # A pattern of the tasks of batch_app that wait: none.
    (tmp_path / "hold").touch()
    common = {"kafka.bootstrap.servers": place.servers, **LIMITS}
    reads = {**common, "subscribe": source, "kafka.group.id": app, "startingOffsets": "earliest", "engine": "native"}
    writes = {**common, "topic": sink, "engine": "native", "kafka.delivery.timeout.ms": "20000"}
    with spark_app(app, tmp_path, "local[2]", reads, writes, environment=place.variables) as running:
        wait_until(lambda: place.values(sink) == [*range(COUNT)], "all records to be written")
        if app == "batch_app":
            running.wait_for(f"count {COUNT}")
