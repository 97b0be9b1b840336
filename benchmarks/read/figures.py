"""Run contestants in turns, and print and save their times."""

import json
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.read.cpu import cpu_by_kind, used_since


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two contestants to compare, and the required ratio of the peer's time to the contestant's time."""

    contestant: str
    peer: str
    bar: float | None = None


@dataclass
class Figures:
    """The times of several contestants in one case.

    Attributes:
        case: The name of the case.
        bar: The required ratio of the first contestant's time to a contestant's time, by contestant.
        seconds: The times in seconds, one per round, by contestant. Each contestant is compared with the first.
        comparisons: Further comparisons, each with a line of its own if both contestants were measured.
        cpu: The CPU seconds of each round, by contestant and kind of process.
    """

    case: str
    bar: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    comparisons: Sequence[Comparison] = ()
    cpu: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        first = next(iter(self.seconds))
        rows = [
            f"| {self.case} | {name} | {median(times):.3f} ({min(times):.3f} to {max(times):.3f}) | "
            f"{self._ratio(Comparison(name, first, self.bar.get(name)))} |"
            for name, times in self.seconds.items()
        ]
        rows += [
            f"| {self.case} | {each.contestant}, beside {each.peer} | | {self._ratio(each)} |"
            for each in self.comparisons
            if {each.contestant, each.peer} <= self.seconds.keys()
        ]
        return rows

    def cpu_lines(self) -> list[str]:
        """Return for each contestant the medians of the CPU seconds, by kind of process."""
        lines = []
        for name, rounds in self.cpu.items():
            kinds = sorted({kind for used in rounds for kind in used})
            spent = {kind: median(used.get(kind, 0.0) for used in rounds) for kind in kinds}
            text = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in spent.items() if seconds >= 0.005)
            lines.append(f"  {name}: CPU seconds: {text}")
        return lines

    def _ratio(self, comparison: Comparison) -> str:
        """Return the last two cells of a line: the ratio of the medians with its spread, and the bar."""
        base, times = self.seconds[comparison.peer], self.seconds[comparison.contestant]
        ratios = [theirs / ours for theirs, ours in zip(base, times, strict=True)]
        ratio, bar = median(base) / median(times), comparison.bar
        verdict = "" if bar is None else f"{bar:.2f} {'met' if ratio >= bar else 'MISSED'}"
        return f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {verdict}"


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
            before = cpu_by_kind()
            seconds = run()
            if number >= 0:
                figures.seconds.setdefault(name, []).append(seconds)
                figures.cpu.setdefault(name, []).append(used_since(before))
    for line in (*figures.lines(), *figures.cpu_lines()):
        print(line, flush=True)
    return figures


def save(given: Namespace, all_figures: list[Figures]) -> None:
    """Write the times of every round as JSON, if `--save` is given."""
    if given.save:
        data = {"machine": given.machine, "cases": [{"case": f.case, "seconds": f.seconds} for f in all_figures]}
        given.save.write_text(json.dumps(data, indent=1))
