"""Runs contestants in turns, and prints and saves their times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median


@dataclass
class Figures:
    """The times of several contestants in one case.

    Attributes:
        case: The name of the case.
        bar: The required ratio of the first contestant's time to a contestant's time, by contestant.
        seconds: The times in seconds, one per round, by contestant; the others are compared with the first one.
    """

    case: str
    bar: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        first = next(iter(self.seconds))
        base = self.seconds[first]
        rows = []
        for name, times in self.seconds.items():
            ratios = [theirs / ours for theirs, ours in zip(base, times, strict=True)]
            ratio = median(base) / median(times)
            bar = self.bar.get(name)
            verdict = "" if bar is None else f"{bar:.2f} {'met' if ratio >= bar else 'MISSED'}"
            rows.append(
                f"| {self.case} | {name} | {median(times):.3f} ({min(times):.3f} to {max(times):.3f}) | "
                f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {verdict} |"
            )
        return rows


HEAD = (
    "| case | source | seconds, median (min to max) | JVM's time / its time (min to max of rounds) | bar |\n"
    "| --- | --- | --- | --- | --- |"
)


def in_turns(
    figures: Figures, contestants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1
) -> Figures:
    """Run every contestant once per round and print the figures; a contestant returns its time in seconds."""
    for number in range(-warm_up, rounds):
        for name, run in contestants.items():
            seconds = run()
            if number >= 0:
                figures.seconds.setdefault(name, []).append(seconds)
    for line in figures.lines():
        print(line, flush=True)
    return figures


def save(path: Path, machine: str, all_figures: list[Figures]) -> None:
    """Write the times of every round as JSON."""
    data = {"machine": machine, "cases": [{"case": f.case, "seconds": f.seconds} for f in all_figures]}
    path.write_text(json.dumps(data, indent=1))
