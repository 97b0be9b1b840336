"""The shared vectors: data from the test suites of Kafka's clients, with the Java client's answers."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assignors import (
    Assignment,
    AssignmentError,
    Subscription,
    TopicPartition,
    check_handover,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    hold_back,
    load,
)
from assignors.model import NO_GENERATION
from tests.support.vectors import assign

SHARED = Path(os.environ.get("KAFKAGROUP_SHARED", Path(__file__).parents[4] / "shared")) / "vectors"

pytestmark = pytest.mark.skipif(
    not (SHARED / "assignors.json").exists(), reason="no shared vectors (../shared or KAFKAGROUP_SHARED)"
)


def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", SHARED / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases() -> list[dict[str, Any]]:
    path = SHARED / "assignors.json"
    return json.loads(path.read_text())["cases"] if path.exists() else []


def wire_cases() -> list[dict[str, Any]]:
    path = SHARED / "wire.json"
    return json.loads(path.read_text())["cases"] if path.exists() else []


@pytest.mark.parametrize("chain", [False, True], ids=["after Java's answers", "after our own"])
def test_every_vector_exactly(chain: bool) -> None:
    check, wrong, passed = checker(), [], 0
    for case in cases():
        if "shape" in case or case.get("kind", "assign") != "assign":
            continue
        previous: dict[str, Any] = {}
        for number, plain in enumerate(check.rounds_of(case)):
            expect = plain.get("expect") or case["expect"]
            filled = check.with_owned(plain, previous)
            options = case.get("options", {})
            got = assign(case["assignor"], filled["topics"], filled.get("racks"), filled["members"], options)
            bad = check.failures(filled, got, expect, options, True, not (chain and number))
            wrong += [f"{case['id']} round {number}: {what}" for what in bad]
            previous = got if chain else plain.get("java_assignment", got)
        passed += 1
    assert passed >= 400
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in cases() if "shape" in case], ids=lambda case: case["id"])
def test_large_groups_within_their_time(case: dict[str, Any]) -> None:
    check = checker()
    previous: dict[str, Any] = {}
    for number, plain in enumerate(check.expand(case["shape"])):
        filled = check.with_owned(plain, previous)
        expect = {**case["expect"], **(case.get("expect_round2", {}) if number else {})}
        previous = assign(case["assignor"], filled["topics"], filled.get("racks"), filled["members"], {})
        assert not check.failures(filled, previous, expect, {})


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.get("kind") == "cooperative-check"], ids=lambda case: case["id"]
)
def test_the_leaders_check_of_a_cooperative_answer(case: dict[str, Any]) -> None:
    def as_partitions(pairs: list[list[Any]]) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, number in pairs]

    group = {member: Subscription((), owned=as_partitions(owned)) for member, owned in case["owned"].items()}
    answer = {member: Assignment(as_partitions(given)) for member, given in case["proposed"].items()}
    adjusted = {member: as_partitions(given) for member, given in case["expect"]["adjusted"].items()}
    assert {member: sorted(given.partitions) for member, given in hold_back(group, answer).items()} == adjusted
    check_handover("cooperative-sticky", group, answer)
    if case["expect"]["allowed"]:
        check_handover("theirs", group, answer)
    else:
        with pytest.raises(AssignmentError, match="before their owners have revoked them"):
            check_handover("theirs", group, answer)


@pytest.mark.parametrize("case", wire_cases(), ids=lambda case: case["id"])
def test_bytes_in_both_directions(case: dict[str, Any]) -> None:
    fields, raw = case["fields"], None if case["hex"] is None else bytes.fromhex(case["hex"])
    user_data = None if fields.get("user_data") is None else bytes.fromhex(fields["user_data"])
    partitions = [TopicPartition(topic, number) for topic, number in fields.get("partitions", fields.get("owned", ()))]
    if case["wire"] == "subscription":
        said = Subscription(fields["topics"], user_data, partitions, fields["generation"], fields.get("rack"))
        version = case["version"]
        assert encode_subscription(said, version) == raw
        assert decode_subscription(raw or b"") == Subscription(
            tuple(sorted(said.topics)),
            user_data,
            sorted(partitions) if version >= 1 else (),
            said.generation if version >= 2 else NO_GENERATION,
            (said.rack or None) if version >= 3 else None,
        )
    elif case["wire"] == "assignment":
        assert encode_assignment(Assignment(partitions, user_data), case["version"]) == raw
        read = decode_assignment(raw or b"")
        assert set(read.partitions) == set(partitions)
        assert read.user_data == user_data
    else:
        member = load(case["wire"])
        if fields:
            member.on_assignment(Assignment(partitions), fields["generation"])
        said_bytes = member.subscription_user_data(["t"])
        assert said_bytes == raw or case.get("note")
        if case["wire"] == "cooperative-sticky":
            assert decode_cooperative_user_data(raw) == fields.get("generation", NO_GENERATION)
        else:
            for data in (raw, said_bytes):
                read_back = decode_sticky_user_data(data)
                assert set(read_back.partitions) == set(partitions)
                assert read_back.generation == fields.get("generation", NO_GENERATION)
