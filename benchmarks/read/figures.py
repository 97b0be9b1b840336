"""Rounds of several contestants, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median


@dataclass
class Figures:
    """Seconds by contestant, a list with one entry a round.

    Attributes:
        case: What was done.
        bar: The contestant that must reach it, and the ratio of the first contestant's time to its own.
        seconds: By contestant; the first is the one that the others are compared with.
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
    "| case | source | seconds, median (least to most) | JVM's time / its time (of single rounds) | bar |\n"
    "| --- | --- | --- | --- | --- |"
)


def in_turns(
    figures: Figures, contestants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1
) -> Figures:
    """Lets each contestant run once a round; each gives its own seconds."""
    for number in range(-warm_up, rounds):
        for name, run in contestants.items():
            seconds = run()
            if number >= 0:
                figures.seconds.setdefault(name, []).append(seconds)
    for line in figures.lines():
        print(line, flush=True)
    return figures


def save(path: Path, machine: str, all_figures: list[Figures]) -> None:
    """The seconds of every round as JSON."""
    data = {"machine": machine, "cases": [{"case": f.case, "seconds": f.seconds} for f in all_figures]}
    path.write_text(json.dumps(data, indent=1))
