"""The commands about groups and topics on a real broker: their JSON fits its schema, and they do what they say."""

import contextlib
import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from assignors import TopicPartition
from docs.json_documents import DOCUMENTS
from kafka_source.model.rewind_target import parse_position
from kafkagroup.admin import Groups, OffsetsDocument
from kafkagroup.cli.app import app
from tests.support.memberships import everything
from tests.support.records import open_transaction, produce, write_records
from tests.support.registry_server import RegistryServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def orders(topic, group, groups):
    """A topic with 20 records in 2 partitions, of which the group has committed 3 in each."""
    name = topic("orders", partitions=2, records=20)
    groups.create(group, dict.fromkeys(everything(name, 2), 3))
    return name


def test_a_group_is_listed_shown_rewound_and_deleted(kafka, members, topic, group, command, groups):
    orders = topic("orders", partitions=2, records=20)
    # Nobody runs micro-batches here, so a rewind of members that offer its protocol would wait for them.
    membership = members.make(orders, slots=2, rewinds=False)
    joined = membership.join(30)
    membership.commit({slot.credentials.slot: dict.fromkeys(slot.partitions, 3) for slot in joined.slots})
    assert any(group in line and "Stable" in line for line in command.run("groups").splitlines())
    said = command.run("group", group)
    assert "Stable" in said
    assert kafka.bootstrap_servers in said
    assert all(f"{group}-app-{slot}" in said for slot in (0, 1))
    command.run("rewind", group, "--to", "earliest", "-t", orders)
    said = command.says("rewind", group, "--to", "earliest", "-t", orders, "--yes", code=1)
    assert "cannot be rewound while it runs: some of its members do not support a rewind" in said
    command.refused("delete", group, "--yes")
    # Brokers may refuse one topic only, so the offsets are shown although the command fails.
    assert orders in command.run("offsets", "delete", group, "-t", orders, "--yes", code=1)
    membership.leave()
    command.run("rewind", group, "--to", "earliest", "-t", orders)
    assert set(groups.committed(group).values()) == {3}
    command.run("rewind", group, "--to", "earliest", "-t", orders, "--yes")
    assert groups.committed(group) == dict.fromkeys(everything(orders, 2), 0)
    command.run("delete", group)
    assert groups.states()[group] == "Empty"
    command.run("delete", group, "--yes")
    assert group not in groups.states()


def ends(groups: Groups, group: str) -> dict[TopicPartition, int]:
    """The ends of the logs that a group reads."""
    return {move.topic_partition: move.offset for move in groups.moves(group, parse_position("latest"))}


def test_a_probe_sees_whether_a_group_gets_on(command, orders, group, groups, tmp_path):
    state = tmp_path / "state.json"
    probe = ("healthcheck", group, "--within", 60, "--state", state)

    def long_ago() -> None:
        """Let the last look be one of two minutes ago."""
        document = json.loads(state.read_text())
        document["partitions"] = [[*row[:-1], row[-1] - 120] for row in document["partitions"]]
        state.write_text(json.dumps(document))

    assert command.run(*probe) == f"Group {group} makes progress: its lag is 14 in 2 partitions.\n"
    long_ago()
    said = command.run(*probe, code=3)
    assert re.match(
        rf"Group {group} is stalled: for up to 1[2-9]\d s the committed offsets of {orders}:0-1 have not", said
    )
    groups.rewind(group, dict.fromkeys(everything(orders, 2), 4))
    command.run(*probe)
    long_ago()
    groups.rewind(group, ends(groups, group))
    assert "its lag is 0" in command.run(*probe)
    long_ago()
    command.run(*probe)
    state.write_text("of something else")
    assert "is not the state of a check" in command.says(*probe)


def test_a_probe_without_a_state_looks_for_a_time(command, orders, group, groups):
    assert f"of {orders}:0-1 have not" in command.run("healthcheck", group, "--within", 1, code=3)
    groups.rewind(group, ends(groups, group))
    assert "its lag is 0" in command.run("healthcheck", group)
    assert "does not exist" in command.refused("healthcheck", f"{group}-mistyped")


def test_the_documents_of_groups(command, orders, group, members):
    members.make(orders, slots=1, strategies=["sticky"], rack="west").join(30)
    (row,) = command.json("groups", "--regex", f"^{group}$", "--lag")
    assert row == {
        "group": group, "type": "classic", "protocol": "consumer", "state": "Stable", "members": 1, "lag": 14,
        "uncommitted": 0, "halt": None,
    }  # fmt: skip
    (row,) = command.json("groups", "--regex", f"^{group}$", "--type", "classic", "--state", "stable")
    assert (row["members"], row["lag"]) == (None, None)
    assert command.json("groups", "--regex", f"^{group}$", "--type", "share") == []
    shown = command.json("group", group)
    (whole,), (member,) = shown["group"], shown["members"]
    assert (whole["lag"], whole["partitions"], whole["uncommitted"], whole["assignor"]) == (14, 2, 0, "sticky")
    assert (member["rack"], member["instance_id"]) == ("west", f"{group}-app-0")
    assert sum(row["lag"] for row in shown["lag"]) == 14
    assert set(command.json("group", "--group", group, "--summary")) == {"group"}
    assert set(command.json("group", group, "--members")) == {"members"}
    (of_topic,) = command.json("group", group, "--by", "topic")["lag"]
    assert (of_topic["name"], of_topic["lag"], of_topic["partitions"]) == (orders, 14, 2)
    (of_member,) = command.json("group", group, "--by", "member")["lag"]
    assert of_member["name"] == f"{group}-app-0"
    rows = list(csv.DictReader(io.StringIO(command.run("group", group, "-o", "csv"))))
    assert sum(int(row["lag"]) for row in rows) == 14
    assert [json.loads(line)["lag"] for line in command.run("group", group, "-o", "jsonl").splitlines()] == [
        int(row["lag"]) for row in rows
    ]


def test_only_some_topics_and_only_with_lag(command, orders, group, groups, topic):
    new = topic("new", partitions=1)
    ends = {TopicPartition(row.topic, row.partition): row.end for row in groups.lag(group)}
    groups.rewind(group, {TopicPartition(orders, 0): ends[TopicPartition(orders, 0)]})
    lag = command.json("group", group, "--only-with-lag")["lag"]
    assert [(row["topic"], row["partition"]) for row in lag] == [(orders, 1)]
    lag = command.json("group", group, "-t", f"{orders}:0", "-t", new)["lag"]
    assert [(row["topic"], row["committed"]) for row in lag] == [(new, None), (orders, ends[TopicPartition(orders, 0)])]


def test_a_lag_above_a_bound_is_an_exit_code(command, orders, group):
    assert command.json("group", group, "--fail-above-lag", "13", code=3)["group"][0]["lag"] == 14
    assert "above 13: " in command.refused("group", group, "--summary", "-o", "json", "--fail-above-lag", "13", code=3)
    command.run("group", group, "--fail-above-lag", "14")
    command.run("groups", "--regex", f"^{group}$", "--fail-above-lag", "13", code=3)
    command.run("groups", "--regex", f"^{group}$", "--fail-above-lag", "14")


def test_one_partition_is_rewound(command, orders, group, groups):
    command.run("rewind", group, "-t", f"{orders}:1", "--to-offset", "1", "--yes")
    assert groups.committed(group) == {TopicPartition(orders, 0): 3, TopicPartition(orders, 1): 1}


def test_offsets_are_exported_imported_cloned_and_deleted(command, orders, group, groups, tmp_path):
    file, copy = tmp_path / "offsets.json", f"{group}-copy"
    command.run("offsets", "export", group, "--file", file)
    assert file.read_text() == command.run("offsets", "export", group)
    assert OffsetsDocument.from_json(file.read_text()).group == group
    command.run("rewind", group, "--to", "earliest", "--all-topics", "--yes")
    assert {move["offset"] for move in command.json("rewind", group, "--from-file", file)} == {3}
    assert {move["committed"] for move in command.json("offsets import", file)} == {0}
    command.json("offsets import", file, "--yes")
    assert set(groups.committed(group).values()) == {3}
    assert {move["offset"] for move in command.json("offsets clone", group, copy)} == {3}
    assert copy not in groups.states()
    command.json("offsets clone", group, copy, "--yes")
    assert groups.committed(copy) == groups.committed(group)
    assert {move["offset"] for move in command.json("rewind", group, "--to-group", copy)} == {3}
    (row,) = command.json("offsets delete", copy, "-t", f"{orders}:0")
    assert (row["partition"], row["committed"]) == (0, 3)
    command.json("offsets delete", copy, "-t", f"{orders}:0", "--yes")
    assert set(groups.committed(copy)) == {TopicPartition(orders, 1)}
    assert "exists already" in command.refused("offsets", "clone", group, copy)
    csv = tmp_path / "java.csv"
    csv.write_text(f'"{orders}",0,1\n"{orders}",1,2\n')
    assert {move["offset"] for move in command.json("rewind", group, "--from-file", csv)} == {1, 2}
    assert {move["offset"] for move in command.json("offsets import", csv, "--group", group)} == {1, 2}
    for text in ("", "[]", "some text", f"{orders},0"):
        csv.write_text(text)
        for arguments in (("rewind", group, "--from-file", csv), ("offsets", "import", csv)):
            assert "offsets export" in command.refused(*arguments)


def test_a_document_of_other_records_is_refused(kafka, command, topic, orders, group, groups, tmp_path):
    file, elsewhere, kept = tmp_path / "offsets.json", tmp_path / "elsewhere.json", topic("kept", partitions=1)
    groups.rewind(group, {TopicPartition(kept, 0): 0})
    command.run("offsets", "export", group, "--file", file)
    elsewhere.write_text(json.dumps({**json.loads(file.read_text()), "cluster": "of-somebody-else"}))
    kafka.delete_topic(orders)
    kafka.create_topic(orders, 2)
    produce(kafka.bootstrap_servers, orders, 20)
    before = groups.committed(group)
    for more in ((), ("--yes",)):
        for said, given in (("created again", file), ("of-somebody-else", elsewhere)):
            assert said in command.refused("offsets", "import", given, *more)
            assert said in command.refused("rewind", group, "--from-file", given, *more)
    assert groups.committed(group) == before
    # What is not selected is not checked.
    (move,) = command.json("rewind", group, "--from-file", file, "-t", kept, "--yes")
    assert (move["topic"], move["offset"]) == (kept, 0)


@pytest.mark.parametrize(
    ("selected", "said"),
    [
        ("{}:7", "no such partition"),
        ("{}:0,7", "no such partition"),
        ("{}-typo:0", "does not exist"),
        ("{}-typo", "does not exist"),
    ],
)
def test_a_monitor_of_partitions_that_do_not_exist_is_told(command, orders, group, selected, said):
    assert said in command.refused("group", group, "-t", selected.format(orders), "--fail-above-lag", 0)


def test_a_group_is_created(command, orders, group, groups):
    name = f"{group}-made"
    assert {move["offset"] for move in command.json("create", name, "-t", orders, "--to", "earliest")} == {0}
    assert name not in groups.states()
    command.json("create", name, "-t", orders, "--to", "earliest", "--yes")
    assert set(groups.committed(name).values()) == {0}
    assert "exists already" in command.refused("create", name, "-t", orders)


def test_topics_and_their_partitions(command, orders):
    (row,) = command.json("topics", "--regex", f"^{orders}$")
    assert (row["topic"], row["partitions"], row["offsets"]) == (orders, 2, 20)
    rows = command.json("topics", "-t", orders)
    assert sum(row["end"] for row in rows) == 20
    assert orders in command.run("topics")
    assert "no-such-topic" in command.refused("topics", "-t", "no-such-topic")


def test_a_checkpoint_of_several_sources_gives_a_group_the_least_offset(command, orders, group, groups, tmp_path):
    about = '{"batchWatermarkMs":0,"batchTimestampMs":8,"conf":{}}'
    sources = [json.dumps({orders: offsets}) for offsets in ({"0": 2, "1": 9}, {"0": 7, "1": 4})]
    for name, lines in (("offsets", ["v1", about, *sources]), ("commits", ["v1", "{}"])):
        (tmp_path / "c" / name).mkdir(parents=True)
        (tmp_path / "c" / name / "0").write_text("\n".join(lines))
    found = command.json("import-checkpoint", str(tmp_path / "c"), "--group", group, "--yes")
    assert [(move["partition"], move["offset"]) for move in found["moves"]] == [(0, 2), (1, 4)]
    first, second = everything(orders, 2)
    assert groups.committed(group) == {first: 2, second: 4}
    command.json("import-checkpoint", str(tmp_path / "c"), "--group", group, "--source", "1", "--yes")
    assert groups.committed(group) == {first: 7, second: 4}


def test_the_brokers_quotas(command, group):
    assert all(row["client_id"] != group for row in command.json("quota brokers"))
    change = ("--client-id", group, "--consumer-bytes", "1048576")
    (shown,) = command.json("quota brokers", *change)
    assert (shown["client_id"], shown["before"], shown["value"]) == (group, None, 1048576.0)
    assert all(row["client_id"] != group for row in command.json("quota brokers"))
    command.json("quota brokers", *change, "--yes")
    try:
        wait_until(lambda: any(row["client_id"] == group for row in command.json("quota brokers")), "the quota")
        (row,) = [row for row in command.json("quota brokers") if row["client_id"] == group]
        assert (row["user"], row["quota"], row["value"]) == (None, "consumer_byte_rate", 1048576.0)
    finally:
        command.json("quota brokers", "--client-id", group, "--consumer-bytes", "0", "--yes")


@pytest.fixture(scope="module")
def letters(kafka):
    """A topic with records of many kinds, and three times between which they were written."""
    name = f"letters-{os.getpid()}"
    # Their timestamps are of 1970, which retention would take for old.
    kafka.create_topic(name, 2, config={"retention.ms": -1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"abc"), ("none", None)]
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]] = [
        (b"k0", b"plain", []),
        (b"k1", b'{"a": 1}', headers),
        (None, b"\x00\x00\x00\x00\x2a\x06xy", []),
        (b"\xff", None, []),
    ]
    for number, (key, value, given) in enumerate(records):
        producer.produce(name, value, key, partition=number % 2, headers=given, timestamp=1_000_000 + 1000 * number)
    for number in range(40):
        producer.produce(name, str(number), partition=0, timestamp=2_000_000 + number)
    assert producer.flush(30) == 0
    return name


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_records_are_shown_with_what_is_in_them(command, letters, engine):
    plain, document, framed, empty = command.json("peek", letters, "--from", "earliest", "-n", 4, "--engine", engine)
    assert (plain["partition"], plain["offset"], plain["timestamp"]) == (0, 0, "1970-01-01T00:16:40.000Z")
    assert (plain["key"]["text"], plain["value"]["text"], plain["value"]["format"]) == ("k0", "plain", "text")
    assert (document["value"]["format"], json.loads(document["value"]["text"])) == ("json", {"a": 1})
    assert [(one["key"], one["value"]["text"]) for one in document["headers"]] == [("trace", "abc"), ("none", None)]
    # Without a registry it is not known whether the first bytes name a schema.
    assert (framed["value"]["schema_id"], framed["value"]["format"], framed["value"]["size"]) == (None, "binary", 8)
    assert (empty["key"]["format"], empty["value"]["format"]) == ("binary", "none")


@pytest.mark.requires_native
def test_avro_is_shown_as_json_with_the_schemas_of_a_registry(command, letters, tmp_path):
    with RegistryServer() as registry:
        registry.add(42, '"long"')
        (shown,) = command.json("peek", f"{letters}:0", "--from", "@1", "-n", 1, "--schema-registry", registry.url)
        assert shown["value"] == {"format": "json", "text": "3", "size": 8, "schema_id": 42, "message": None}
        login = tmp_path / "client.properties"
        login.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info=me:secret\n")
        login.chmod(0o600)
        (shown,) = command.json("peek", f"{letters}:0", "--from", "@1", "-n", 1, "--command-config", login)
        assert shown["value"]["text"] == "3"
        assert registry.headers["Authorization"] == "Basic bWU6c2VjcmV0"


def test_a_function_shows_what_it_makes_of_the_records(command, letters, tmp_path, monkeypatch):
    (tmp_path / "functions_to_try.py").write_text(
        "import kafkagroup, pyarrow as pa\n"
        "@kafkagroup.arrow_function\n"
        "def places(batches):\n"
        "    for batch in batches:\n"
        "        print('a line of its own')\n"
        "        yield batch.select(['value', 'offset', 'headers'])\n"
        "def plain(batches):\n"
        "    return batches\n"
    )
    monkeypatch.chdir(tmp_path)
    shown = command.run("peek", letters, "-n", 2, "--from", "earliest", "--map", "functions_to_try:places")
    rows = sorted((json.loads(line) for line in shown.splitlines()), key=lambda row: row["value"])
    assert [(row["value"], row["offset"]) for row in rows] == [("plain", 0), ('{"a": 1}', 0)]
    assert rows[1]["headers"][0] == {"key": "trace", "value": "abc"}
    for function, told in (
        ("functions_to_try:plain", "is not decorated by kafkagroup.arrow_function"),
        ("nowhere:f", "nowhere:f cannot be imported"),
    ):
        assert told in command.refused("peek", letters, "--map", function)
    assert "cannot be used with --follow" in command.says("peek", letters, "-f", "--map", "nowhere:f", code=2)


def test_records_from_a_place_in_the_log(command, letters):
    assert [row["value"]["text"] for row in command.json("peek", letters, "-n", 3)] == ["37", "38", "39"]
    found = command.json("peek", f"{letters}:0", "--from", "1970-01-01T00:33:20.005Z", "-n", 2)
    assert [row["value"]["text"] for row in found] == ["5", "6"]
    assert [row["offset"] for row in command.json("peek", f"{letters}:0", "--from", "@10", "-n", 2)] == [10, 11]
    assert [row["partition"] for row in command.json("peek", f"{letters}:1")] == [1, 1]
    assert command.json("peek", letters, "--back", "1h") == []
    assert len(command.json("peek", letters, "-n", 100)) == 44
    assert "has no partition 7" in command.refused("peek", f"{letters}:7")


def test_new_records_are_shown_as_they_come(kafka, topic):
    name = topic("followed", partitions=2, records=2)
    words = ["-m", "kafkagroup.cli", "tail", name, "-n", "1", "-o", "json", "-b", kafka.bootstrap_servers]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        first = json.loads(tail.stdout.readline())
        assert first["topic"] == name
        produce(kafka.bootstrap_servers, name, 3, first=2)
        found = [json.loads(tail.stdout.readline()) for _ in range(3)]
        assert sorted(row["value"]["text"] for row in found) == ["2", "3", "4"]
        tail.send_signal(signal.SIGINT)
        try:
            assert tail.wait(30) == 0
        finally:
            tail.kill()
        assert tail.stderr is not None
        assert tail.stderr.read().startswith(f"Understood as: kafkagroup peek --follow {name}")


def test_topics_are_named_as_arguments_too(command, letters):
    assert command.json("topics", letters) == command.json("topics", "-t", letters)
    assert command.json("peek", "-t", letters, "-n", 1) == command.json("peek", letters, "-n", 1)
    assert "names another topic" in command.says("peek", letters, "-t", "other", code=2)


def test_records_that_are_not_committed_are_left_out_on_demand(kafka, command, topic):
    name = topic("transactions", partitions=1)
    open_transaction(kafka.bootstrap_servers, name, name, [b"given up"]).abort_transaction(30)
    produce(kafka.bootstrap_servers, name, 2)
    assert [row["value"]["text"] for row in command.json("peek", name)] == ["given up", "0", "1"]
    peek = ("peek", name, "--isolation-level", "read_committed", "-n", 5)
    committed = wait_until(lambda: command.json(*peek), "the marker")
    assert [row["value"]["text"] for row in committed] == ["0", "1"]


def test_an_assignment_is_planned_as_it_would_be(command, orders, group, members, topic):
    rows = command.json("plan", "range", "-t", orders, "--slots", 2)
    assert [(row["member"], row["count"]) for row in rows] == [("slot-0", 1), ("slot-1", 1)]
    offline = json.loads(CliRunner().invoke(app, ["plan", "sticky", "-t", "x=8", "--slots", "3", "-o", "json"]).stdout)
    assert sorted(row["count"] for row in offline) == [2, 3, 3]
    weighted = command.json("plan", "weighted", "-t", "x=9", "--member", "big@east=2", "--member", "small")
    assert [(row["member"], row["count"], row["outside_rack"]) for row in weighted] == [
        ("big", 6, 6),
        ("small", 3, None),
    ]
    many = topic("many", partitions=6)
    made = members.make(many, slots=2, strategies=["sticky"])
    held = made.join(30)
    now = {f"{group}-app-{slot.credentials.slot}": set(slot.partitions) for slot in held.slots}
    planned = command.json("plan", "sticky", "--group", group, "--member", "new", "-t", many)
    assert {row["member"] for row in planned} == {*now, "new"}
    for row in planned:
        partitions = {TopicPartition(**tp) for tp in row["partitions"]}
        assert row["count"] == 2
        assert row["member"] == "new" or partitions < now[row["member"]]
    added = members.make(many, slots=1, app="new", strategies=["sticky"])
    assert "copartition assigns nothing" in command.refused(
        "plan", "copartition", "-t", "x=8", "-t", "y=6", "--slots", 2
    )
    added.close()


def test_a_group_is_watched(command, orders, group):
    def lines(count: int, *more: str) -> str:
        return command.run("watch", group, "-i", "0.2", "-n", count, *more)

    samples = [json.loads(line) for line in lines(3, "-o", "json").splitlines()]
    validator = Draft202012Validator(DOCUMENTS["watch"].schema())
    for sample in samples:
        validator.validate(sample)
        assert (sample[0]["group"], sample[0]["lag"], sample[0]["state"]) == (group, 14, "Empty")
    assert samples[0][0]["rate_in"] is None
    assert (samples[2][0]["rate_in"], samples[2][0]["rate_out"]) == (0.0, 0.0)
    rows = list(csv.DictReader(io.StringIO(lines(2, "-o", "csv"))))
    assert [row["lag"] for row in rows] == ["14", "14"]
    assert "trend" in lines(1)
    (late, *others) = json.loads(lines(1, "--skew", "-o", "json"))
    Draft202012Validator(DOCUMENTS["watch"].schema()).validate([late, *others])
    assert late["ahead_seconds"] == 0
    assert all(row["next_timestamp"] >= late["next_timestamp"] for row in others)
    assert sum(row["lag"] for row in (late, *others)) == 14
    assert "ahead" in lines(1, "--skew")
    assert group in command.run("watch", "--regex", f"^{group}$", "-n", 1)
    assert "does not exist" in command.refused("watch", f"{group}-not", "-n", 1)


def test_a_watch_goes_on_without_a_group_that_is_deleted(command, orders, group, groups, monkeypatch):
    other = f"{group}-other"
    groups.clone(group, other)
    looked: list[list[str]] = []
    look = Groups.snapshot

    def look_at(self: Groups, names: Iterable[str], **more: Any) -> Any:
        looked.append([*names])
        if len(looked) == 2:
            # Between the list of the groups and the look at them.
            groups.delete(other)
        return look(self, looked[-1], **more)

    def samples(*arguments: str) -> list[list[str]]:
        lines = command.run("watch", *arguments, "-i", "0.1", "-n", 3, "-o", "json").splitlines()
        return [[row["group"] for row in json.loads(line)] for line in lines]

    monkeypatch.setattr(Groups, "snapshot", look_at)
    assert samples("--regex", f"^{group}") == [[group, other], [group], [group]]
    assert looked == [[group, other], [group, other], [group]]
    looked.clear()
    groups.clone(group, other)
    assert samples(group, other) == [[group, other], [group], [group]]


def test_a_terminal_shows_a_table_that_changes_until_ctrl_c(kafka, orders, group):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkagroup.cli", "watch", group, "-i", "0.2", "-b", kafka.bootstrap_servers],
        cwd=ROOT,
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"},
        start_new_session=True,
    )
    os.close(theirs)
    said = ""

    def seen(what: str) -> bool:
        nonlocal said
        with contextlib.suppress(OSError):  # the command has ended
            while select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 65536).decode(errors="replace")
        return what in said

    try:
        wait_until(lambda: seen("14"), "the lag")
        produce(kafka.bootstrap_servers, orders, 30)
        wait_until(lambda: seen("44"), "the lag that has grown")
        process.send_signal(2)
        # A terminal that nobody reads is full after 4 KiB, and the command would wait with its last table.
        wait_until(lambda: (seen(""), process.poll())[1] is not None, "its end")
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        os.close(ours)
    assert "\x1b[" in said, "a terminal has colours"
    assert "█" in said
    assert "Traceback" not in said


def test_lines_of_standard_input_become_records(command, topic, kafka):
    name = topic("lines", partitions=2)

    def produce_lines(text: str, *words: str) -> None:
        result = CliRunner().invoke(app, ["produce", name, *words, "-b", kafka.bootstrap_servers], input=text)
        assert result.exit_code == 0, result.output
        assert "Wrote 2 records" in result.stderr

    produce_lines("a\nb:c\n")
    produce_lines("k:v\r\nno key\n", "-K", ":")
    produce_lines(
        '{"key": "j", "value": {"a": 1}, "partition": 1, "headers": {"h": "x"}}\n{"value": null, "partition": 1}\n',
        "--from-json",
    )
    lines = [json.loads(line) for line in command.run("peek", name, "-n", 6, "-o", "jsonl").splitlines()]
    found = {(one["key"]["text"], one["value"]["text"]) for one in lines}
    assert found == {(None, "a"), (None, "b:c"), ("k", "v"), (None, "no key"), ("j", '{"a": 1}'), (None, None)}
    (header,) = next(one["headers"] for one in lines if one["key"]["text"] == "j")
    assert (header["key"], header["value"]["text"]) == ("h", "x")
    assert "line 1 must be an object" in command.says("produce", name, "--from-json", code=2, given="[1]\n")


def test_brokers_are_shown_with_their_addresses(command, letters, kafka):
    (row,) = command.json("brokers")
    assert row["address"] == kafka.bootstrap_servers
    assert row["leads"] >= 2


def test_the_schema_ids_of_a_topic_are_counted(command, topic, kafka):
    name = topic("framed", partitions=1)
    values = (b"\x00\x00\x00\x00\x2a{}", b"plain", b'\x00\x00\x00\x00\x2a{"a": 1}')
    write_records(kafka.bootstrap_servers, name, ({"value": value} for value in values))
    framed, plain = command.json("schema", name)
    assert framed == {"schema_id": 42, "message": None, "records": 2, "first": f"{name}-0@0", "last": f"{name}-0@2"}
    assert (plain["schema_id"], plain["records"]) == (None, 1)


@pytest.mark.parametrize(
    "line",
    [
        "topics TOPICs",
        "peek TOPICs",
        "produce TOPICs",
        "schema TOPICs",
        "redrive TOPICs",
        "export TOPICs --to - --format csv",
        "plan range --slots 2 -t TOPICs",
        "create another -t TOPICs --to earliest",
        "rewind GROUP -t TOPICs --to earliest",
        "offsets export GROUP -t TOPICs",
        "offsets delete GROUP -t TOPICs",
        "group GROUPs",
        "plan range --group GROUPs",
        "healthcheck GROUPs",
        "rewind GROUPs -t TOPIC --to earliest",
        "rewind GROUP -t TOPIC --to-group GROUPs",
        "stop GROUPs",
        "pause GROUPs",
        "resume GROUPs",
        "delete GROUPs",
        "offsets export GROUPs",
        "offsets delete GROUPs -t TOPIC",
        "offsets clone GROUPs another",
    ],
)
def test_a_misspelt_name_is_answered_with_the_similar_one(command, orders, group, line):
    meant = orders if "TOPICs" in line else group
    words = line.replace("TOPIC", orders).replace("GROUP", group).split()
    assert f"Did you mean {meant}?" in command.refused(*words)


def test_a_rewind_says_how_many_records_are_read_again(command, orders, group):
    assert "6 records are read again, and 0 are skipped" in command.says("rewind", group, "--to", "@0", "-t", orders)


AVRO = {"schema": {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}}
MESSAGE = "message %s { int64 id = 1; }"
PROTOBUF = {"schema": f'syntax = "proto3"; {MESSAGE % "Item"} {MESSAGE % "Order"}', "schemaType": "PROTOBUF"}


@pytest.mark.requires_native
@pytest.mark.parametrize(
    ("form", "schema", "options", "head", "numbers"),
    [
        *((form, AVRO, (), b"", b"\0\2\4") for form in ("parquet", "arrow", "jsonl")),
        ("parquet", PROTOBUF, ("--value-message", "Order"), b"\2\2\x08", b"\0\1\2"),
    ],
    ids=["parquet", "arrow", "jsonl", "protobuf"],
)
def test_values_are_exported_decoded(command, topic, kafka, tmp_path, form, schema, options, head, numbers):
    name, path = topic("decoded", partitions=1), tmp_path / f"decoded.{form}"
    records = ({"value": b"\0\0\0\0\x07" + head + bytes([number])} for number in numbers)
    write_records(kafka.bootstrap_servers, name, records)
    with RegistryServer() as registry:
        registry.add(7, **schema)
        to = ("export", name, "--to", path, "--columns", "value, topic, partition, offset", *options)
        command.run(*to, "--value-schema", 7, "--schema-registry", registry.url)
        assert "is for a file" in command.says(*to, "--format", "csv", "--value-schema", 7, code=2)
    reader = {"parquet": "parquet", "arrow": "ipc", "jsonl": "ndjson"}[form]
    assert getattr(pl, f"read_{reader}")(path)["value"].to_list() == [{"id": 0}, {"id": 1}, {"id": 2}]
