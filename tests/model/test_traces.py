"""What the simulator's exactly-once sinks do is what their specification can do: TLC accepts the traces."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.model.tlc import configured, run_tlc
from tests.support.simulator import run_simulator

# Sinks write with the native engine.
pytestmark = pytest.mark.requires_native

Trace = dict[str, Any]


def traces(*arguments: object) -> list[Trace]:
    """Return the traces of seeds that the specification can have."""
    told = run_simulator("actions", *arguments)
    return [one for one in json.loads(told) if not one["unsuitable"]]


def begin_of(trace: Trace, actions: int) -> Trace:
    """Return a trace without its end."""
    return {**trace, "actions": trace["actions"][:actions]}


def refused(folder: Path, given: Sequence[Trace]) -> dict[int, str]:
    """Return the traces that the specification cannot have, by their place, with the action that it cannot do."""
    actions = [one["actions"] for one in given]
    drivers = max(event.get("k", 1) for events in actions for event in events)
    batches = 1 + max(batch for one in given for _, batch, __ in one["rows"])
    rows = []
    for one in given:
        counts = {(driver, batch): tasks for driver, batch, tasks in one["rows"]}
        rows.append([[counts.get((k, b), 0) for b in range(1, batches + 1)] for k in range(1, drivers + 1)])
    events = [event for one in actions for event in one]
    numbers = {
        "Tasks": range(1, 1 + max(tasks for one in given for _, __, tasks in one["rows"])),
        "Drivers": range(1, drivers + 1),
        "Slots": range(1, 1 + max(event.get("s", 1) for event in events)),
    }
    constants = {name: f"{{{', '.join(map(str, values))}}}" for name, values in numbers.items()}
    text = f"---- MODULE SinkTraces ----\nTraces == {_tla(actions)}\nRows == {_tla(rows)}\n====\n"
    (folder / "SinkTraces.tla").write_text(text)
    config = configured("SinkTrace", {**constants, "Batches": str(batches)})
    told = run_tlc(folder, "SinkTrace", config, "-deadlock", "-workers", "1")
    assert "No error has been found" in told, told[-4000:]
    reached: dict[int, int] = {}
    for trace, event in re.findall(r'<<"reached", (\d+), (\d+)>>', told):
        reached[int(trace) - 1] = max(int(event) - 1, reached.get(int(trace) - 1, 0))
    return {
        number: f"{one['seed']}, {reached[number]}: {one['actions'][reached[number]]}"
        for number, one in enumerate(given)
        if reached[number] < len(one["actions"])
    }


def _tla(value: Any) -> str:
    """Return a value of JSON as TLA+ writes it."""
    if isinstance(value, dict):
        return f"\n[{', '.join(f'{name} |-> {_tla(one)}' for name, one in value.items())}]"
    if isinstance(value, list):
        return f"<<{', '.join(map(_tla, value))}>>"
    return json.dumps(value)


def moved(trace: Trace, action: str, before: str) -> Trace:
    """Return a trace in which the last action of a name comes before the last one of another name before it."""
    actions = list(trace["actions"])
    names = [one["a"] for one in actions]
    at = len(names) - 1 - names[::-1].index(action)
    to = at - 1 - names[:at][::-1].index(before)
    return {**trace, "actions": [*actions[:to], actions[at], *actions[to:at], *actions[at + 1 :]]}


def without(trace: Trace, action: str) -> Trace:
    """Return a trace without the first action of a name."""
    actions = list(trace["actions"])
    del actions[[one["a"] for one in actions].index(action)]
    return {**trace, "actions": actions}


def test_the_specification_can_do_what_sinks_do_and_not_what_they_must_not_do(tmp_path: Path) -> None:
    real = [begin_of(one, 70) for one in traces(5, 26)]
    assert len(real) == 2
    wrong = [
        moved(real[0], "Decide", before="Prepared"),
        moved(real[0], "EndNext", before="Decide"),
        moved(real[0], "Checkpoint", before="Decide"),
        without(real[0], "WriteMarkers"),
        without(real[0], "InitDriver"),
    ]
    assert sorted(refused(tmp_path, [*real, *wrong])) == [2, 3, 4, 5, 6]


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_the_specification_can_do_what_sinks_do_whatever_the_seed(tmp_path: Path, first: int) -> None:
    found = traces(*range(first, first + 100))
    assert len(found) > 5
    assert refused(tmp_path, found) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "defect",
    [
        "commit the records before the decision",
        "take each decision for finished",
        "leave undecided transactions open",
        "decide in a new epoch",
        "record as finished what is not visible",
    ],
)
def test_the_specification_refuses_what_a_defect_makes_of_it(tmp_path: Path, defect: str) -> None:
    assert refused(tmp_path, traces(*range(200), "--with-defect", defect))
