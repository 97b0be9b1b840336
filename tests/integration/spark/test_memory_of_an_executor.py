"""An executor of two cores works in the memory that docs/tuning.md reserves for it."""

import pytest

from kafkagroup.embedded import EmbeddedKafka
from testbed.memory_limit import MemoryLimit, reason_against_memory_limits
from tests.apps.memory_app import SIZES
from tests.apps.process import spark_app

CORES, HEAP = 2, 1024
# docs/tuning.md, in MiB: outside the heap if tasks read and write, and the limit of the workers' address space.
OVERHEAD, ADDRESS_SPACE = 384 + 2 * CORES * 256, CORES * 512
MASTER = f"local-cluster[1,{CORES},{HEAP}]"

pytestmark = [pytest.mark.long, pytest.mark.requires_native, pytest.mark.timeout(900)]


@pytest.fixture
def options():
    with EmbeddedKafka(config={"message.max.bytes": 16_000_000}) as kafka:
        for name in ("copies", *(f"bytes-{size}" for size in SIZES)):
            kafka.create_topic(name, partitions=4)
        yield {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.request.size": 16_000_000}


def run(app):
    app.wait_for("stopped", 800)
    lines = app.lines()
    for size, count in SIZES.items():
        written = count * (size // 32) * 32
        assert {f"read bytes-{size} {written + count * 12}", f"json bytes-{size} {written}"} <= set(lines), lines
    assert f"copied {SIZES[1000]}" in lines, lines


def test_the_overhead_of_the_page_is_enough_beside_a_full_heap(tmp_path, options):
    if reason := reason_against_memory_limits():
        pytest.skip(reason)
    with MemoryLimit(HEAP + OVERHEAD) as limit:
        home = limit.java_home(tmp_path / "java", f"-Xms{HEAP}m", "-XX:+AlwaysPreTouch")
        with spark_app("memory_app", tmp_path, MASTER, options, environment={"JAVA_HOME": str(home)}) as app:
            run(app)
        print(f"peak {limit.peak} of {HEAP + OVERHEAD} MiB")
        assert limit.kills == 0


def test_the_address_space_of_the_page_is_enough(tmp_path, options):
    conf = {"spark.executor.pyspark.memory": f"{ADDRESS_SPACE}m"}
    with spark_app("memory_app", tmp_path, MASTER, options, conf=conf) as app:
        run(app)
