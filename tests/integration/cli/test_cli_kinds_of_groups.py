"""Each command against groups of each kind: ours, others, of both protocols, without members, no consumers at all."""

import csv
import io
import itertools
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from jsonschema import Draft202012Validator

from assignors import Subscription, TopicPartition, encode_subscription
from docs.json_documents import DOCUMENTS
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group import GenericMember, MemberSettings
from kafkagroup.admin import Groups, MemberDescription, Rows
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import java_app
from tests.support.commands import Command
from tests.support.memberships import Memberships, everything
from tests.support.records import produce
from tests.support.waiting import wait_until

PARTITIONS, RECORDS, COMMITTED = 4, 40, 3
LAG = RECORDS - PARTITIONS * COMMITTED
KINDS = {"ours": "classic", "theirs": "classic", "kip-848": "consumer", "empty": "classic"}
WITH_MEMBERS = ("ours", "theirs", "kip-848")


@pytest.fixture(scope="module")
def orders(kafka: EmbeddedKafka) -> str:
    name = f"kinds-{os.getpid()}"
    kafka.create_topic(name, PARTITIONS)
    produce(kafka.bootstrap_servers, name, RECORDS)
    return name


@pytest.fixture(scope="module")
def kinds(kafka: EmbeddedKafka, orders: str) -> Iterator[dict[str, str]]:
    """A group of each kind, which has committed the offset 3 in each partition, by its kind."""
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    groups = {kind: f"{kind}-{os.getpid()}" for kind in KINDS}
    # The hash of its name is negative in Java, which decides where the coordinator keeps it.
    groups["ours"] = "billing"
    for group in groups.values():
        Groups(settings).create(group, dict.fromkeys(everything(orders, PARTITIONS), COMMITTED))
    with ExitStack() as running:
        memberships = running.enter_context(closing(Memberships(settings, groups["ours"])))
        # Nobody runs micro-batches here, so a rewind of members that offer its protocol would wait for them.
        memberships.make(orders, slots=2, strategies=["weighted"], rack="west", rewinds=False).join(30)
        for kind, protocol, members in (("theirs", "classic", 2), ("kip-848", "consumer", 1)):
            config = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": groups[kind],
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "client.id": f"{kind}-client",
                "client.rack": "east",
                "auto.offset.reset": "earliest",
            }
            consumers = [running.enter_context(closing(Consumer(config))) for _ in range(members)]
            for consumer in consumers:
                consumer.subscribe([orders])

            def settled(consumers: list[Consumer] = consumers) -> bool:
                for consumer in consumers:
                    consumer.poll(0.1)
                held = [len(consumer.assignment()) for consumer in consumers]
                return all(held) and sum(held) == PARTITIONS

            wait_until(settled, f"the members of {kind}")
        yield groups


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_listed(command: Command, kinds: dict[str, str], kind: str) -> None:
    (row,) = command.json("groups", "--regex", f"^{kinds[kind]}$", "--lag")
    assert (row["type"], row["lag"]) == (KINDS[kind], LAG)
    assert row["state"] == ("Stable" if kind in WITH_MEMBERS else "Empty")
    assert kinds[kind] in {one["group"] for one in command.json("groups", "--type", KINDS[kind])}
    assert kinds[kind] in command.run("groups", "--lag")


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_shown(command: Command, kinds: dict[str, str], orders: str, kind: str) -> None:
    group = kinds[kind]
    shown = command.json("group", group)
    (whole,) = shown["group"]
    assert (whole["type"], whole["lag"], whole["partitions"]) == (KINDS[kind], LAG, PARTITIONS)
    assert [row["committed"] for row in shown["lag"]] == [COMMITTED] * PARTITIONS
    owned = [tp["partition"] for member in shown["members"] for tp in member["partitions"]]
    assert sorted(owned) == (list(range(PARTITIONS)) if kind in WITH_MEMBERS else [])
    assert {row["name"] for row in command.json("group", group, "--by", "topic")["lag"]} == {orders}
    of_members = command.json("group", group, "--by", "member")["lag"]
    assert sum(row["lag"] for row in of_members) == LAG
    assert len(of_members) == max(1, len(shown["members"]))
    assert command.json("group", group, "--summary", "--fail-above-lag", LAG - 1, code=3)["group"] == [whole]
    rows = list(csv.DictReader(io.StringIO(command.run("group", group, "-o", "csv"))))
    assert sum(int(row["behind"]) for row in rows) == LAG
    table = command.run("group", group)
    assert whole["coordinator"] in table
    assert f"{LAG}" in table


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_watched(command: Command, kinds: dict[str, str], kind: str) -> None:
    validator = Draft202012Validator(DOCUMENTS["watch"].schema())
    by_group, by_member = (
        [
            json.loads(line)
            for line in command.run("watch", kinds[kind], "-i", 0.1, "-n", 2, "-o", "json", *more).splitlines()
        ]
        for more in ((), ("--members",))
    )
    for sample in (*by_group, *by_member):
        validator.validate(sample)
        assert sum(row["lag"] for row in sample) == LAG
    assert (by_group[1][0]["rate_out"], by_group[1][0]["seconds_to_zero"]) == (0.0, None)
    assert [row["rate_out"] for row in by_member[1]] == [0.0] * len(by_member[1])
    members = {row["member"] for row in by_member[1]}
    assert members == {None} if kind == "empty" else len(members) == by_group[1][0]["members"]
    for more in ((), ("--members",)):
        assert kinds[kind] in command.run("watch", kinds[kind], "-n", 1, *more)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_not_moved_or_deleted_while_it_has_members(
    command: Command, kinds: dict[str, str], orders: str, kind: str
) -> None:
    group = kinds[kind]
    if kind == "empty":
        assert {move["offset"] for move in command.json("rewind", group, "--to", "earliest", "--all-topics")} == {0}
        command.json("offsets delete", group, "-t", orders)
        command.json("delete", group)
        return
    said = command.says("rewind", group, "--to", "earliest", "-t", orders, "--yes", code=1)
    assert f"Group {group} cannot be rewound while it runs" in said
    for arguments in (("offsets", "delete", group, "-t", orders, "--yes"), ("delete", group, "--yes")):
        assert group in command.refused(*arguments)
    assert {row["committed"] for row in command.json("group", group)["lag"]} == {COMMITTED}


@pytest.mark.parametrize("kind", WITH_MEMBERS)
def test_another_assignor_is_planned_for_its_members(
    command: Command, kinds: dict[str, str], orders: str, kind: str
) -> None:
    planned = command.json("plan", "sticky", "--group", kinds[kind], "--member", "new", "-t", orders)
    partitions = [TopicPartition(**tp) for row in planned for tp in row["partitions"]]
    assert sorted(partitions) == everything(orders, PARTITIONS)
    assert "new" in {row["member"] for row in planned}


@pytest.mark.parametrize(("protocol_type", "protocol"), [("connect", "sessioned"), ("workers", "v1")])
def test_a_group_that_no_consumers_form(
    kafka: EmbeddedKafka, command: Command, group: str, orders: str, protocol_type: str, protocol: str
) -> None:
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    metadata = encode_subscription(Subscription((orders,)))
    of_kind = MemberSettings(group, protocol_type=protocol_type)
    with GenericMember(settings, of_kind, {protocol: metadata}, lambda _, said: dict.fromkeys(said, b"")) as member:
        assert member.wait(30) is not None
        (row,) = command.json("groups", "--regex", f"^{group}$", "--lag")
        assert (row["protocol"], row["state"], row["lag"]) == (protocol_type, "Stable", None)
        shown = command.json("group", group)
        assert [one["partitions"] for one in shown["members"]] == [[]]
        assert shown["lag"] == []
        assert command.json("watch", group, "-n", 1)[0]["members"] == 1


def test_a_share_group_is_named(
    kafka: EmbeddedKafka, command: Command, members: Memberships, group: str, orders: str, tmp_path: Path
) -> None:
    with java_app("ShareConsumer", tmp_path, kafka.bootstrap_servers, group, orders) as sharing:
        sharing.wait_for("polled")

        # A poll may return before the coordinator has made the group.
        def listed() -> list[dict[str, object]]:
            rows: list[dict[str, object]] = command.json("groups", "--type", "share", "--regex", f"^{group}$", "--lag")
            return rows

        (row,) = wait_until(listed, f"the share group {group}")
        assert (row["type"], row["lag"]) == ("share", None)
        for arguments in (("group", group), ("watch", group, "-n", "1"), ("plan", "range", "--group", group)):
            assert "is a share group" in command.refused(*arguments), arguments
        with pytest.raises(InvalidConfigurationError, match=f"Group {group} is a share group"):
            members.make(orders, slots=1).join(30)


def test_each_member_commits_at_its_own_rate(kafka: EmbeddedKafka, group: str, members: Memberships) -> None:
    name = f"{group}-rates"
    kafka.create_topic(name, 2)
    produce(kafka.bootstrap_servers, name, 2000)
    membership = members.make(name, slots=2)
    slots = {slot.partitions[0].partition: slot.credentials.slot for slot in membership.join(30).slots}
    membership.commit({slot: {TopicPartition(name, partition): 0} for partition, slot in slots.items()})
    stop = threading.Event()

    def commit() -> None:
        for offset in itertools.count(1):
            if stop.is_set():
                return
            membership.commit({slots[0]: {TopicPartition(name, 0): offset}})

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit)
        try:
            described = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).describe(
                group, rate_seconds=0.5
            )
        finally:
            stop.set()
        committing.result()
    rates = {member.name: member.rate for member in described.members}
    assert (rates[f"{group}-app-{slots[0]}"] or 0) > 0
    assert rates[f"{group}-app-{slots[1]}"] == 0.0
    column = Rows(MemberDescription, described.members).to_pandas()["rate"]
    assert sorted(column) == sorted(rate for rate in rates.values() if rate is not None)
