"""Keep stories. A story is a world, its events, and a defect that does harm in this world when it is put back.

A story does not change when the seeds do. `python -m tests.simulation mutations --seeds 300 --keep` looks for stories
that are missing.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from tests.simulation.scenario import Fault, Reading, Scenario

_FILE = Path(__file__).with_name("stories.jsonl")


def read_stories() -> dict[str, Scenario]:
    """Return the scenario of each defect that has a story."""
    found = {}
    for line in _FILE.read_text().splitlines():
        known = json.loads(line)
        defect, events = known.pop("defect"), known.pop("events")
        reading = Reading(**known.pop("reading", {}))
        found[defect] = Scenario(**known, reading=reading, faults=tuple(Fault(*event) for event in events))
    return found


def write_stories(stories: Mapping[str, Scenario]) -> None:
    """Write these stories, and remove all others."""
    _FILE.write_text("".join(f"{json.dumps(_line(*one))}\n" for one in sorted(stories.items())))


def _line(defect: str, scenario: Scenario) -> dict[str, object]:
    fields = [field for field in dataclasses.fields(scenario) if field.name != "faults"]
    world = {one.name: getattr(scenario, one.name) for one in fields if getattr(scenario, one.name) != one.default}
    if "reading" in world:
        world["reading"] = dataclasses.asdict(scenario.reading)
    return {"defect": defect, **world, "events": [list(dataclasses.astuple(fault)) for fault in scenario.faults]}
