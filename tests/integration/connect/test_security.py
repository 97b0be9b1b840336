"""Spark reads from brokers that ask who it is: logins, TLS, missing rights, and secrets that are seen nowhere."""

import base64
import json
import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from kafka_source.client_config import Settings
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka, Security, run_java
from tests.support.programs import run_python
from tests.support.queries import query_of
from tests.support.records import numbers, produce, run_to_end, to_files, written
from tests.support.waiting import wait_until_committed

ROOT = Path(__file__).parents[3]
TOPIC = "payroll"
COUNT = 120
SECONDS = 60
ACL_TOOL = "org.apache.kafka.tools.AclCommand"
PASSWORD, WRONG = "correct-horse-battery", "incorrect-donkey-socket"
# Who may do what: all of it; not the group; not the transactional ids; what the page says, command by command.
ALL, NO_GROUP, NO_TRANSACTIONS, BY_THE_PAGE = "alice", "bob", "carol", "dora"


@pytest.fixture(scope="module")
def guarded():
    """SASL_PLAINTEXT with access control."""
    users = dict.fromkeys((ALL, NO_GROUP, NO_TRANSACTIONS), PASSWORD)
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {**users, BY_THE_PAGE: PASSWORD}, acls=True)) as kafka:
        kafka.create_topic(TOPIC, 2)
        produce(kafka.internal_bootstrap_servers, TOPIC, COUNT)
        for user in users:
            kafka.allow(user, "READ", "DESCRIBE", name=TOPIC)
        for user in (ALL, NO_TRANSACTIONS):
            kafka.allow(user, "READ", resource="group")
        kafka.allow(ALL, "WRITE", "DESCRIBE", resource="transactional_id")
        yield kafka


@pytest.fixture(scope="module")
def encrypted():
    """SASL_SSL, every user may do everything."""
    with EmbeddedKafka(security=Security("SASL_SSL", {ALL: PASSWORD})) as kafka:
        kafka.create_topic(TOPIC, 2)
        produce(kafka.internal_bootstrap_servers, TOPIC, COUNT)
        yield kafka


@pytest.fixture(
    params=[("guarded", "PLAIN"), ("guarded", "SCRAM-SHA-512"), ("encrypted", "SCRAM-SHA-512")], ids=" ".join
)
def login(request):
    """A Kafka, and the options with which Spark logs in there."""
    name, mechanism = request.param
    kafka = request.getfixturevalue(name)
    return kafka, options(kafka, ALL, mechanism)


def options(kafka, user, mechanism="PLAIN", *, password=PASSWORD, **more):
    """A user's options as they are in Spark, the login as a Java client's `sasl.jaas.config`."""
    config = {f"kafka.{name}": value for name, value in kafka.java_client_config(user, mechanism).items()}
    assert PASSWORD in config["kafka.sasl.jaas.config"]
    config["kafka.sasl.jaas.config"] = config["kafka.sasl.jaas.config"].replace(PASSWORD, password)
    return {**config, "subscribe": TOPIC, **{name.replace("_", "."): value for name, value in more.items()}}


def committed(kafka, group):
    """Whether the group has committed all records, or does so soon: a commit is seen once its marker is written."""
    groups = Groups(Settings({"bootstrap.servers": kafka.internal_bootstrap_servers}))
    wait_until_committed(groups, group, COUNT)
    return True


def batch(spark, given):
    return spark.read.format("kafkagroup").options(**given).load()


def run_stream(spark, given, folder):
    """Stream what is there now into files; the reason if that fails."""
    frame = spark.readStream.format("kafkagroup").options(**given, startingOffsets="earliest").load()
    run_to_end(to_files(frame, folder), SECONDS)


def refusal(run):
    """The line in which a query tells why it failed, within seconds."""
    began = time.monotonic()
    with pytest.raises(Exception) as caught:
        run()
    assert time.monotonic() - began < SECONDS, "the reason came late"
    text = str(caught.value)
    assert PASSWORD not in text
    assert WRONG not in text
    lines = [line for line in text.splitlines() if "kafka_source.errors." in line]
    assert lines, text
    return lines[0]


def test_a_batch_and_a_stream_log_in_and_commit(spark, login, group, tmp_path):
    kafka, given = login
    frame = batch(spark, {**given, "kafka.group.id": f"{group}-batch", "commit": "task"})
    assert numbers(frame) == list(range(COUNT))
    assert committed(kafka, f"{group}-batch")
    run_stream(spark, {**given, "kafka.group.id": f"{group}-stream"}, tmp_path)
    assert written(tmp_path / "out") == list(range(COUNT))
    assert committed(kafka, f"{group}-stream")
    seen = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert TOPIC.encode() in seen
    assert PASSWORD.encode() not in seen


@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.long), "SCRAM-SHA-512"])
def test_a_wrong_password_is_told(spark, guarded, group, tmp_path, mechanism):
    given = options(guarded, ALL, mechanism, password=WRONG)
    for more in ({}, {"kafka.group.id": group}):
        reason = refusal(lambda: batch(spark, {**given, **more}).collect())  # noqa: B023
        assert "AuthenticationError" in reason
        assert "kafka.sasl.mechanism and the credentials" in reason
    assert "AuthenticationError" in refusal(lambda: run_stream(spark, {**given, "kafka.group.id": group}, tmp_path))


def test_a_missing_right_to_the_group_is_told(spark, guarded, group):
    reason = refusal(lambda: batch(spark, options(guarded, NO_GROUP, kafka_group_id=group)).collect())
    assert f"group {group}" in reason
    assert "Give this user READ on the group" in reason
    assert "kafka-acls.sh --add" in reason


@pytest.mark.long
def test_the_commands_of_the_page_are_what_streams_and_sinks_need(spark, guarded, group, tmp_path):
    given = options(guarded, BY_THE_PAGE, kafka_group_id=group)
    out, prefix = f"{group}-out", f"copy-of-{group}"  # No right to the group fits the prefix.
    guarded.create_topic(out, 2)
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| .* \| `(--operation .*)` \|$", page, flags=re.MULTILINE)
    commands = iter(rows)

    def allow(operation: str) -> None:
        name, command = next(commands)
        assert name == operation
        names = {"orders-enriched": prefix, "enriched": out, "orders": TOPIC, "billing": group}
        allowed = [names.get(word, word) for word in command.split()]
        at = ("--bootstrap-server", guarded.internal_bootstrap_servers)
        done = run_java(ACL_TOOL, *at, "--add", "--allow-principal", f"User:{BY_THE_PAGE}", *allowed)
        assert done.returncode == 0, done.stdout + done.stderr

    def read(folder: str) -> None:
        run_stream(spark, {**given, "commit.transactional": "true"}, tmp_path / folder)

    assert "--topic TOPIC" in refusal(lambda: read("0"))
    allow("read")
    assert "--group GROUP" in refusal(lambda: read("1"))
    allow("join the group, commit offsets")
    assert "--transactional-id PREFIX" in refusal(lambda: read("2"))
    allow("commit offsets in transactions")
    read("allowed")
    assert committed(guarded, group)
    allow("`commit=task`, `commit=sink`")

    login = {name: value for name, value in given.items() if name not in ("subscribe", "kafka.group.id")}

    def write() -> None:
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("kafkagroup").mode("append")
        rows.options(**login, topic=out).save()

    assert "WRITE" in refusal(write)
    allow("sink, at least once")
    write()

    def copy(folder: str) -> None:
        reader = spark.readStream.format("kafkagroup").options(**login, subscribe=TOPIC, startingOffsets="earliest")
        writer = reader.load().select("value").writeStream.format("kafkagroup").options(**login, topic=out)
        writer = writer.option("transactional", "true").option("transactional.id.prefix", prefix)
        run_to_end(writer.option("checkpointLocation", str(tmp_path / folder)), SECONDS)

    allow("exactly-once sink: topics")
    assert "transactional id" in refusal(lambda: copy("no-ids"))
    allow("exactly-once sink: transactional ids")
    assert f"group {prefix}" in refusal(lambda: copy("no-groups"))
    allow("exactly-once sink: its own groups")
    copy("copied")
    assert next(commands, None) is None
    everything = {"kafka.bootstrap.servers": guarded.internal_bootstrap_servers, "subscribe": out}
    everything |= {"kafka.isolation.level": "read_committed"}
    assert batch(spark, everything).count() == 3 + COUNT


def test_without_a_right_to_transactions_offsets_are_committed_as_by_a_consumer(spark, guarded, group, tmp_path):
    given = options(guarded, NO_TRANSACTIONS, kafka_group_id=group)
    # A group of its own: the slots of tasks that failed wait for the next attempt, and a stream would wait with them.
    in_batch = {**given, "commit": "task", "kafka.group.id": f"{group}-refused", "commit.transactional": "true"}
    reason = refusal(lambda: batch(spark, in_batch).collect())
    assert "commit.transactional" in reason
    assert "WRITE and DESCRIBE on the transactional id" in reason
    assert numbers(batch(spark, {**given, "commit": "task", "kafka.group.id": f"{group}-batch"})) == list(range(COUNT))
    assert committed(guarded, f"{group}-batch")
    run_stream(spark, {**given, "maxOffsetsPerTrigger": str(COUNT // 3)}, tmp_path / "plain")
    assert written(tmp_path / "plain" / "out") == list(range(COUNT))
    assert committed(guarded, group)


def test_a_stream_says_once_that_it_commits_without_transactions(guarded, group, caplog):
    # No task reads the micro-batches.
    given = {**options(guarded, NO_TRANSACTIONS, kafka_group_id=group), "strict": "false"}
    given["startingOffsets"] = "earliest"
    given["maxOffsetsPerTrigger"] = str(COUNT // 3)
    planner, offset = MicroBatches(query_of(given)), StreamOffset()
    with caplog.at_level("WARNING", "kafka_source"):
        with closing(planner):
            while (end := planner.next(offset, limited=True)) is not offset:
                offset = end
            assert committed(guarded, group)
    (told,) = [text for text in caplog.messages if "without transactions" in text]
    assert told.startswith(f"group={group}: offsets are committed without transactions.")
    assert "--operation Write --operation Describe --transactional-id" in told


def test_no_secret_is_seen_anywhere(guarded, group, tmp_path):
    """Not in the output of a talkative application (which has the output of Spark's workers), nor in its files."""
    good = options(guarded, ALL, "PLAIN", kafka_group_id=group)
    bad = options(guarded, ALL, "PLAIN", kafka_group_id=group, password=WRONG)
    arguments = ("-m", "tests.apps.telling_app", tmp_path, json.dumps(good), json.dumps(bad))
    done = run_python(*arguments, seconds=200, environment={"KAFKAGROUP_LOG_LEVEL": "DEBUG"})
    said = done.stdout + done.stderr
    assert f"good batch {COUNT}" in said, said[-3000:]
    assert f"good stream {COUNT}" in said
    assert "DEBUG kafka_source" in said
    assert said.count("AuthenticationError") >= 2
    assert "tasks [ReadTask(" in said
    assert "sasl.jaas.config" in said
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(TOPIC.encode() in content for content in files)
    everything = b"\n".join([said.encode(), *files])
    for secret in (PASSWORD, WRONG):
        login = f"\0{ALL}\0{secret}".encode()
        forms = (secret.encode(), secret.encode().hex().encode(), *map(base64.b64encode, (secret.encode(), login)))
        assert [form for form in forms if form in everything] == []
