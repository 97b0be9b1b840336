"""`kafkagroup redrive`: each dead letter once, also where letters are doubles and runs are killed."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError, OptionError
from kafka_source.produce.dead_letters import write_dead_letters
from kafkagroup import arrow
from kafkagroup.admin import Groups, Redriven, redrive
from kafkagroup.admin.dead_letters import ATTEMPT
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, delete_before, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.requires_native

Place = tuple[str, int, int]


def write_letters(kafka: EmbeddedKafka, dead: str, origin: str, offsets: list[int], attempts: int = 0) -> None:
    """Write dead letters of the records at these offsets, as a task does."""
    own = [{"key": "trace", "value": b"7"}, *([{"key": ATTEMPT, "value": b"%d" % attempts}] if attempts else [])]
    records = pa.table(
        {
            "key": pa.array([None if o % 3 else b"%d" % o for o in offsets], pa.binary()),
            "value": pa.array([b"%d" % o for o in offsets], pa.binary()),
            "headers": pa.array([own] * len(offsets), pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))),
            "topic": [origin] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
    ).to_batches()[0]
    write_dead_letters(settings(kafka), dead, records, ["broken"] * len(offsets))


def settings(kafka: EmbeddedKafka) -> Settings:
    return Settings({"bootstrap.servers": kafka.bootstrap_servers})


def rows(kafka: EmbeddedKafka, topic: str) -> list[dict[str, object]]:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    stream = arrow.read(topic, config, columns=("key", "value", "headers"))
    return [row for batch in stream for row in batch.to_pylist()]


def test_each_letter_goes_back_once_with_its_key_its_headers_and_the_count_of_attempts(
    kafka: EmbeddedKafka, topic: Topic
) -> None:
    dead, origin = topic("dead", partitions=2), topic("orders", partitions=1)
    write_letters(kafka, dead, origin, [4, 5, 6, 5])
    produce(kafka.bootstrap_servers, dead, 3)
    assert redrive(settings(kafka), dead) == Redriven(letters=3, doubles=1, others=3)
    back = {row["value"]: row for row in rows(kafka, origin)}
    assert {value: row["key"] for value, row in back.items()} == {b"4": None, b"5": None, b"6": b"6"}
    headers = [{"key": "trace", "value": b"7"}, {"key": ATTEMPT, "value": b"1"}]
    assert all(row["headers"] == headers for row in back.values())

    # A later letter of the same record, and one of a record that was put back before.
    write_letters(kafka, dead, origin, [6])
    write_letters(kafka, dead, origin, [7], attempts=1)
    assert redrive(settings(kafka), dead) == Redriven(letters=1, doubles=1)
    assert rows(kafka, origin)[-1]["headers"] == [headers[0], {"key": ATTEMPT, "value": b"2"}]
    assert redrive(settings(kafka), dead) == Redriven()


def test_letters_go_to_another_topic_and_begin_at_a_time(kafka: EmbeddedKafka, topic: Topic) -> None:
    dead, origin, other = topic("dead", partitions=1), topic("orders", partitions=1), topic("again", partitions=1)
    write_letters(kafka, dead, origin, [1, 2])
    assert redrive(settings(kafka), dead, to=other, since="2100-01-01T00:00:00Z") == Redriven()
    with pytest.raises(OptionError, match="a topic other than"):
        redrive(settings(kafka), dead, to=dead)


def test_a_start_is_that_of_the_first_run_even_if_that_run_fails(kafka: EmbeddedKafka, topic: Topic) -> None:
    dead, origin = topic("dead", partitions=2), topic("orders", partitions=1)
    write_letters(kafka, dead, origin, list(range(10)))
    time.sleep(0.01)
    start = str(round(time.time() * 1000))
    write_letters(kafka, dead, origin, list(range(10, 20)))
    wrong = CliRunner().invoke(app, ["redrive", dead, "--since", "yesterday", "-b", kafka.bootstrap_servers])
    assert wrong.exit_code == 2
    assert "Invalid value for --since" in wrong.output
    with pytest.raises(KafkaGroupError, match="no topic"):
        redrive(settings(kafka), dead, to="no topic", since=start)
    assert redrive(settings(kafka), dead) == Redriven(letters=10)


def test_a_later_run_knows_all_letters_that_were_put_back(kafka: EmbeddedKafka, topic: Topic) -> None:
    dead, origin = topic("dead", partitions=1), topic("orders", partitions=1)
    write_letters(kafka, dead, origin, [1, 2])
    assert redrive(settings(kafka), dead) == Redriven(letters=2)
    write_letters(kafka, dead, origin, [2, 3])
    assert redrive(settings(kafka), dead, since="2100-01-01T00:00:00Z") == Redriven(letters=1, doubles=1)


def test_a_run_goes_on_after_retention_has_deleted_letters(kafka: EmbeddedKafka, topic: Topic) -> None:
    dead, origin = topic("dead", partitions=1), topic("orders", partitions=1)
    write_letters(kafka, dead, origin, [1, 2, 3])
    assert redrive(settings(kafka), dead) == Redriven(letters=3)
    write_letters(kafka, dead, origin, [4, 5])
    delete_before(kafka, dead, {0: 4})
    assert redrive(settings(kafka), dead) == Redriven(letters=1)


@pytest.mark.parametrize("letters", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_each_letter_is_written_once_though_runs_are_killed(kafka: EmbeddedKafka, topic: Topic, letters: int) -> None:
    dead, origin, to = topic("dead", partitions=3), topic("orders", partitions=1), topic("again", partitions=3)
    rng = random.Random(letters)
    doubles = rng.sample(range(letters), letters // 10)
    for first in range(0, letters, 500):
        write_letters(kafka, dead, origin, list(range(first, first + 500)))
    write_letters(kafka, dead, origin, doubles)
    program = (
        "import sys; from kafka_source.client_config import Settings; from kafkagroup.admin import redrive\n"
        "print(redrive(Settings({'bootstrap.servers': sys.argv[1]}), sys.argv[2], to=sys.argv[3], max_bytes=20_000))"
    )
    command = [sys.executable, "-c", program, kafka.bootstrap_servers, dead, to]
    groups, group = Groups(settings(kafka)), f"{dead}-redrive"

    def progress() -> int:
        return sum(groups.committed(group).values())

    kills = 10 if letters == 10_000 else 3
    for _ in range(kills):
        before, more = progress(), rng.randrange(1, letters // kills // 2)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            wait_until(lambda: progress() >= before + more, "progress")  # noqa: B023 - it is called at once
            run.send_signal(signal.SIGKILL)
        assert run.returncode == -signal.SIGKILL
    assert redrive(settings(kafka), dead, to=to).letters > 0
    assert Counter(row["value"] for row in rows(kafka, to)) == Counter(b"%d" % n for n in range(letters))
