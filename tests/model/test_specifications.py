"""TLC checks the specifications of our protocols in this folder; docs/design/model.md says what they model."""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.model.tlc import HERE, configured, run_tlc

PAGE = HERE.parents[1] / "docs" / "design" / "model.md"
SINK, GROUP = "ExactlyOnceSink", "ConsumerGroup"
TWO_FAULTS = {"Batches": "1", "MaxFaults": "2", "Turns": "{0, 1, 2, 3, 4}"}


@dataclass(frozen=True)
class Verdict:
    """What TLC says about a specification.

    Attributes:
        violated: The invariant that does not hold, or `liveness`, or `standstill` if nothing can happen any more before
            all is done; empty if everything holds.
        states: The number of distinct states that it has visited.
    """

    violated: str
    states: int


def check(folder: Path, name: str, constants: Mapping[str, str] | None = None, liveness: str = "") -> Verdict:
    """Run TLC on a specification, with other constants than its `.cfg` names where they are given."""
    config = configured(name, constants or {}) + (f"PROPERTY {liveness}\n" if liveness else "")
    told = run_tlc(folder, name, config, "-workers", "2")
    said = re.search(
        r"(?:Invariant|Action property) (\w+) is violated|(Temporal properties were violated)|(Deadlock reached)", told
    )
    counted = re.findall(r"(\d+) distinct states found", told.replace(",", ""))
    assert counted, told[-4000:]
    violated = "" if said is None else said[1] or ("liveness" if said[2] else "standstill")
    assert violated or "No error has been found" in told, told[-4000:]
    return Verdict(violated, int(counted[-1]))


@pytest.mark.parametrize("on_lost", ["fail", pytest.param("replay", marks=pytest.mark.long)])
def test_the_sink_writes_each_batch_exactly_once_with_a_fault_anywhere(tmp_path: Path, on_lost: str) -> None:
    found = check(tmp_path, SINK, {"OnLost": f'"{on_lost}"'})
    assert found.violated == ""
    assert found.states > 50_000


@pytest.mark.long
@pytest.mark.parametrize("on_lost", ["fail", "replay"])
def test_the_sink_comes_to_an_end_with_a_batch_after_the_fault(tmp_path: Path, on_lost: str) -> None:
    found = check(tmp_path, SINK, {"OnLost": f'"{on_lost}"'}, "Liveness")
    assert found.violated == ""
    assert found.states > 50_000


@pytest.mark.long
@pytest.mark.parametrize("on_lost", ["fail", "replay"])
def test_the_sink_writes_a_batch_exactly_once_with_two_faults(tmp_path: Path, on_lost: str) -> None:
    found = check(tmp_path, SINK, {"OnLost": f'"{on_lost}"', **TWO_FAULTS})
    assert found.violated == ""
    assert found.states > 1_000_000


@pytest.mark.long
def test_attempts_that_take_the_first_free_id_end_what_is_decided(tmp_path: Path) -> None:
    assert check(tmp_path, SINK, {"Broken": '{"turn"}', **TWO_FAULTS}).violated == "DecidedStays"


@pytest.mark.parametrize(
    ("broken", "violated"),
    [
        pytest.param("flush", "NoLoss", id="a-task-reports-before-its-flush"),
        pytest.param("all", "NoLoss", id="the-driver-decides-before-all-tasks-have-prepared", marks=pytest.mark.long),
        pytest.param(
            "open",
            "DecidedStays",
            id="the-driver-does-not-look-whether-the-transactions-are-open",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "offsets", "OffsetsMatch", id="the-offsets-are-committed-before-the-decision", marks=pytest.mark.long
        ),
        pytest.param("epoch", "DecidedStays", id="a-replaced-driver-may-decide"),
        pytest.param("ledger", "NoDuplicate", id="a-replay-is-not-recognised", marks=pytest.mark.long),
        pytest.param(
            "finished", "CheckpointIsFinished", id="a-replaced-driver-records-finished", marks=pytest.mark.long
        ),
        pytest.param("replaced", "LossIsReal", id="a-replaced-driver-says-lost", marks=pytest.mark.long),
    ],
)
def test_the_sinks_invariants_notice_a_missing_rule(tmp_path: Path, broken: str, violated: str) -> None:
    assert check(tmp_path, SINK, {"Broken": f'{{"{broken}"}}'}).violated == violated


def test_a_group_reads_each_record_by_its_owner_with_a_fault_anywhere(tmp_path: Path) -> None:
    found = check(tmp_path, GROUP)
    assert found.violated == ""
    assert found.states > 30_000


TWO = {"Partitions": "{1, 2}"}
LATE = {"Slow": "TRUE", "Late": "TRUE"}
BY_SINK = {"Sink": "TRUE"}


@pytest.mark.long
@pytest.mark.parametrize(
    "constants",
    [
        pytest.param({"Records": "2"}, id="two-batches"),
        pytest.param(LATE, id="heartbeats-that-are-under-way"),
        pytest.param({**TWO, "Late": "TRUE"}, id="two-partitions"),
        pytest.param({"MaxFaults": "2"}, id="two-faults"),
        pytest.param({"Members": "{1, 2, 3}", "MaxFaults": "0"}, id="three-members-without-a-fault"),
        pytest.param(BY_SINK, id="commit-by-sink"),
        pytest.param({**BY_SINK, **LATE}, id="commit-by-sink-with-heartbeats-that-are-under-way"),
    ],
)
def test_a_group_reads_each_record_by_its_owner_in_a_larger_world(tmp_path: Path, constants: dict[str, str]) -> None:
    found = check(tmp_path, GROUP, constants)
    assert found.violated == ""
    assert found.states > 50_000


@pytest.mark.long
@pytest.mark.parametrize("constants", [{}, {**TWO, "MaxFaults": "0"}], ids=["one-fault", "two-partitions"])
def test_a_group_comes_to_an_end_when_the_faults_have_stopped(tmp_path: Path, constants: dict[str, str]) -> None:
    assert check(tmp_path, GROUP, constants, "Liveness").violated == ""


@pytest.mark.parametrize(
    ("broken", "violated", "constants"),
    [
        pytest.param("turn", "FromTheOwner", {}, id="a-slot-takes-partitions-while-a-heartbeat-is-under-way"),
        pytest.param(
            "silent",
            "FromTheOwner",
            {},
            id="what-is-being-given-up-is-left-out-of-a-full-heartbeat",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "flight",
            "KeptInFlight",
            {},
            id="partitions-are-given-up-in-the-middle-of-their-batch",
            marks=pytest.mark.long,
        ),
        pytest.param("written", "NothingSkipped", {}, id="a-batch-is-committed-that-is-not-written"),
        pytest.param("epoch", "FromTheOwner", {}, id="commits-do-not-name-the-epoch", marks=pytest.mark.long),
        pytest.param(
            "full", "standstill", {}, id="a-heartbeat-without-an-answer-is-not-said-again", marks=pytest.mark.long
        ),
        pytest.param("fence", "FromTheOwner", {}, id="a-fenced-member-keeps-what-it-has", marks=pytest.mark.long),
        pytest.param("owned", "FromTheOwner", {}, id="what-was-given-up-is-committed", marks=pytest.mark.long),
        pytest.param("stable", "NeverBack", {"Records": "2"}, id="open-commits-are-overlooked", marks=pytest.mark.long),
        pytest.param("compare", "NeverBack", {"Records": "2"}, id="own-positions-win", marks=pytest.mark.long),
        pytest.param("look", "ExactlyOnce", BY_SINK, id="a-new-epoch-is-used-without-a-look", marks=pytest.mark.long),
        pytest.param("told", "standstill", TWO, id="an-offer-taken-back-is-not-acknowledged", marks=pytest.mark.long),
        pytest.param(
            "after",
            "FromTheOwner",
            {**TWO, "Late": "TRUE"},
            id="a-slot-says-that-it-has-nothing-before-it-takes",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_groups_invariants_notice_a_missing_rule(
    tmp_path: Path, broken: str, violated: str, constants: dict[str, str]
) -> None:
    assert check(tmp_path, GROUP, {"Broken": f'{{"{broken}"}}', **constants}).violated == violated


def rows(name: str) -> dict[str, str]:
    """The table of actions in the page's part about a specification: `module:function`, or who else acts, by action."""
    (part,) = [one for one in PAGE.read_text().split("\n## ") if f"`{name}.tla`" in one]
    found: dict[str, str] = {}
    for names, actor in re.findall(r"(?m)^\| (`[A-Z]\w+`(?:, `[A-Z]\w+`)*) \| ([^|]+) \| [^|]+ \|$", part):
        found |= dict.fromkeys(re.findall(r"\w+", names), actor)
    return found


@pytest.mark.parametrize("name", [SINK, GROUP])
def test_the_page_names_every_action_and_functions_that_exist(name: str) -> None:
    text = (HERE / f"{name}.tla").read_text()
    steps = re.findall(r"(?ms)^(?:\w*Acts\(\w\)|Launches\(k, t\)|Next) ==.*?(?=^\S)", text)
    actions = {found for step in steps for found in re.findall(r"(\w+)\(\w(?:, \w)?\)", step.partition("==")[2])}
    assert {one for one in actions if not one.endswith("Acts")} - {"Launches", "On", "In"} == set(rows(name))
    for actor in rows(name).values():
        if match := re.fullmatch(r"`([\w.]+):([\w.]+)`", actor):
            found: object = importlib.import_module(match[1])
            for part in match[2].split("."):
                found = getattr(found, part)


def test_every_specification_is_checked() -> None:
    assert {path.stem for path in HERE.glob("*.tla")} == {SINK, GROUP, "SinkTrace"}
