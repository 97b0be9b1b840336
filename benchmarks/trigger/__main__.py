"""How well `targetTriggerDuration` is kept: swinging load, a burst, a sink that stands still, kill -9.

    ./run bench trigger [--target 5s] [--phase 60] [--save FILE]

The query has 2 cores, and its work on the rows allows 20,000 records a second. The load swings between 3,000 and 30,000
records a second. Then 300,000 records arrive in each of 3 seconds; the sink stands still for half a phase; the work
takes five times as long; and the query's process is killed and started again. A trigger is behind if its plan left
records over. Triggers that are behind count from the fourth such trigger in a row after an event on. A line of the
table has the triggers since an event. `./run bench plot FILE PICTURE` draws the figures of `--save`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._command import begin, parser_of
from benchmarks.read.topics import produce
from kafkagroup.embedded import EmbeddedKafka
from testbed.load import Load

TOPIC, PARTITIONS = "swinging", 4
LOW, HIGH, SPEED = 3_000, 30_000, 20_000
BURST_SECONDS, BURST_TIMES = 3, 100
SKIPPED, NEAR = 3, 0.25
START_SECONDS = 300


@dataclass(frozen=True)
class Trigger:
    """A trigger as Spark's progress shows it; `left`: the records that the trigger did not take."""

    ended: float
    seconds: float
    rows: int
    limit: int
    left: int

    @property
    def is_behind(self) -> bool:
        return self.left > 0 and self.rows > self.limit // 2


@dataclass(frozen=True)
class Event:
    """A change of the load or of the query's speed."""

    at: float
    name: str


class Query:
    """The query's process, which can be killed and started again."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = json.dumps(job)
        self._folder = Path(job["folder"])
        self.start()

    def start(self) -> None:
        log = (self._folder / "log").open("a")
        command = [sys.executable, "-m", "benchmarks.trigger.query", self._job]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill the Python process; the JVM then ends too, because its standard input ends."""
        self._process.kill()
        self._process.wait()

    def wait_for(self, triggers: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(self.triggers()) < triggers:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text()[-4000:])
            time.sleep(0.5)

    def triggers(self) -> list[Trigger]:
        lines = self._folder / "triggers"
        return [Trigger(**json.loads(line)) for line in lines.read_text().splitlines()] if lines.exists() else []


def set_speed(file: Path, per_second: int) -> None:
    """Set how many records a second the query's tasks allow; no task reads a half-written file."""
    new = file.with_suffix(".new")
    new.write_text(str(per_second))
    new.replace(file)


def run(target: str, phase: float) -> tuple[list[Event], list[Trigger]]:
    events: list[Event] = []

    def note(name: str) -> None:
        events.append(Event(time.time(), name))
        print(f"  {name}", flush=True)

    with (
        EmbeddedKafka(heap="1g", jvm_options=()) as kafka,
        TemporaryDirectory(prefix="kafkagroup-trigger-", ignore_cleanup_errors=True) as folder,
    ):
        servers, speed = kafka.bootstrap_servers, Path(folder, "speed")
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        set_speed(speed, SPEED)
        load = Load(servers, TOPIC, HIGH)
        job = {"servers": servers, "topic": TOPIC, "target": target, "folder": folder}
        query = Query(job)
        query.wait_for(1)
        note("30,000 records/s")
        time.sleep(phase)
        for _ in range(2):
            load.change(LOW)
            note("3,000 records/s")
            time.sleep(phase)
            load.change(HIGH)
            note("30,000 records/s")
            time.sleep(phase / 2)
        load.change(LOW)
        time.sleep(phase)
        note("a burst of 100 times")
        burst(servers)
        time.sleep(phase)
        note("the sink stands still")
        set_speed(speed, 0)
        time.sleep(phase / 2)
        set_speed(speed, SPEED)
        note("the sink works again")
        time.sleep(phase)
        set_speed(speed, SPEED // 5)
        note("the work takes 5 times as long")
        time.sleep(phase)
        query.kill()
        note("kill -9")
        before = len(query.triggers())
        query.start()
        query.wait_for(before + 1)
        time.sleep(phase)
        query.kill()
        load.close()
        return events, query.triggers()


def burst(servers: str) -> None:
    records = ({"value": str(number)} for number in range(BURST_SECONDS * BURST_TIMES * LOW))
    produce(servers, TOPIC, records, {"linger.ms": 20})


def counted(events: Sequence[Event], triggers: Sequence[Trigger]) -> dict[Event, list[Trigger]]:
    """Return the triggers that count (see the module), by the last event before they began."""
    found: dict[Event, list[Trigger]] = {event: [] for event in events}
    for event, after in pairwise([*events, Event(float("inf"), "")]):
        in_a_row = 0
        for one in triggers:
            if event.at <= one.ended - one.seconds < after.at:
                in_a_row = in_a_row + 1 if one.is_behind else 0
                if in_a_row > SKIPPED:
                    found[event].append(one)
    return found


def line(name: str, seconds: Sequence[float], target: float) -> str:
    near = sum(abs(one / target - 1) <= NEAR for one in seconds)
    longest = max(seconds) / target if seconds else 0.0
    share = f"{near / len(seconds):.0%}" if seconds else "-"
    return f"| {name} | {len(seconds)} | {share} | {longest:.2f} |"


def main() -> None:
    parser = parser_of(__doc__, saves=True)
    parser.add_argument("--target", type=int, default=5, help="seconds")
    parser.add_argument("--phase", type=float, default=60, help="seconds")
    given = begin(parser)
    events, triggers = run(f"{given.target}s", given.phase)
    print("| since | triggers | within 25 % | longest / target |\n| --- | --- | --- | --- |")
    by_event = counted(events, triggers)
    for event, ones in by_event.items():
        print(line(event.name, [one.seconds for one in ones], given.target))
    print(line("**all**", [one.seconds for ones in by_event.values() for one in ones], given.target))
    print(line("every trigger", [one.seconds for one in triggers], given.target))
    if given.save:
        document = {
            "machine": given.machine,
            "trigger": {
                "target": given.target,
                "events": [asdict(event) for event in events],
                "triggers": [asdict(one) for one in triggers],
            },
        }
        given.save.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
