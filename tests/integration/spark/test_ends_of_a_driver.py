"""The driver of a stream ends without stopping it: nothing hangs, and its group is left."""

import json
import signal
import sys
from pathlib import Path

import pytest

from kafka_source.errors import UnknownGroupError
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App
from tests.support.records import Topic, produce
from tests.support.waiting import wait_until

DRIVER = """
import json, os, signal, sys
from tests.apps.streaming_app import session

folder, given = sys.argv[1], json.loads(sys.argv[2])
spark = session("local[2]")

def begin(write, name):
    frame = spark.readStream.format("kafkagroup").options(**given).load()
    return frame.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/{name}").start()

def fail(frame, number):
    print("begun", flush=True)
    input()
    list(1 // 0 for _ in frame.toLocalIterator())

written = []

def tell(frame, number):
    written.append(frame.count())
    print(f"wrote {sum(written)}", flush=True)

"""
_WAITS = "running = begin(tell, 'told')\ninput()\n"
_FAILS_AND_FORKS = """
failing = begin(fail, "failing")
try:
    failing.awaitTermination()
except Exception as error:
    print(f"failed {error}".replace(chr(10), " "), flush=True)
input()
running = begin(tell, "told")
input()
if not os.fork():
    sys.exit()
os.wait()
print("forked", flush=True)
input()
sys.exit(3)
"""
_ENDS = {
    "an error, a fork and SystemExit": (_FAILS_AND_FORKS, 3),
    "os._exit": (_WAITS + "os._exit(4)", 4),
    "Ctrl-C": (_WAITS + "running.awaitTermination()", -signal.SIGINT),
}


@pytest.mark.parametrize("how", _ENDS)
def test_the_group_is_left_and_nothing_of_the_driver_goes_on(
    kafka: EmbeddedKafka, topic: Topic, groups: Groups, tmp_path: Path, how: str
) -> None:
    name = topic("driver-ends", partitions=2, records=40)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": name,
        "group.members": "1",
        # Longer than this test waits: the group is left, and not only rid of a member that is silent.
        "kafka.session.timeout.ms": "300000",
        "startingOffsets": "earliest",
    }

    def members() -> int:
        try:
            return len(groups.describe(name).members)
        except UnknownGroupError:
            return 0

    code, exit_code = _ENDS[how]
    command = [sys.executable, "-c", DRIVER + code, str(tmp_path), json.dumps(options)]
    with App(command, tmp_path / "driver.log") as driver:

        def go_on() -> None:
            print(file=driver.process.stdin, flush=True)

        if code == _FAILS_AND_FORKS:
            driver.wait_for("begun", 180)
            assert members() == 1
            go_on()
            assert "ZeroDivisionError" in driver.wait_for("failed")
            wait_until(lambda: members() == 0, "the end of its membership", 30)
            assert sum(groups.committed(name).values()) == 0
            go_on()
        driver.wait_for("wrote 40", 180)
        assert members() == 1
        go_on()
        if code == _FAILS_AND_FORKS:
            driver.wait_for("forked")
            produce(kafka.bootstrap_servers, name, 7)
            # The child that has ended took nothing of the query along.
            driver.wait_for("wrote 47")
            go_on()
        if how == "Ctrl-C":
            driver.process.send_signal(signal.SIGINT)
        assert driver.process.wait(60) == exit_code
        wait_until(lambda: not driver.family(), "the end of the driver's processes", 60)
        wait_until(lambda: members() == 0, "the end of its membership", 60)
    assert "Fatal" not in driver.log.read_text()
