"""Draw the figures that a benchmark saved with `--save`, as bars or lines; draw the summary.

    ./run bench read --save read.json && ./run bench plot read.json docs/assets/benchmark-read.svg
    ./run bench group --scale --save group.json && ./run bench plot group.json docs/assets/benchmark-group.svg
    ./run bench trigger --save trigger.json && ./run bench plot trigger.json docs/assets/benchmark-trigger.svg
    ./run bench skew --save skew.json && ./run bench plot skew.json docs/assets/late-rows.svg
    ./run bench lag --save lag.json && ./run bench plot lag.json docs/assets/benchmark-lag.svg
    ./run bench plot docs/assets/benchmark-summary.json docs/assets/benchmark-summary.svg

Bars are medians, whiskers the fastest and the slowest round. The number behind a bar is the first contestant's median
divided by the bar's own median. The lines are medians of CPU seconds, by the number of slots or of partitions. A
dotted line shows linear growth from the first point, so a line below the dotted line grows less.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("svg")
# The same figures give the same file.
matplotlib.rcParams["svg.hashsalt"] = "benchmark"
matplotlib.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
matplotlib.rcParams |= {"legend.frameon": False, "legend.fontsize": 8}

from matplotlib import pyplot  # noqa: E402 - the backend is chosen before
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import NullLocator  # noqa: E402

from benchmarks._command import parser_of  # noqa: E402

# The colours of the site, in which kafkagroup is blue.
COLOURS = {"jvm": "#9aa5b1", "jvm-tuned": "#616e7c", "native": "#4051b5", "librdkafka": "#9fa8da", "floor": "#dfe3e8"}
OTHERS = ("#e25a1c", "#f0915f", "#f7c4a6", "#4f6d7a")
BAR_INCHES = 0.15
Saved: TypeAlias = dict[str, Any]
"""The figures that a benchmark saved."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The seconds of one contestant's rounds; `ratio` is the first contestant's median over its own."""

    contestant: str
    seconds: Sequence[float]
    ratio: float


def bars(saved: Saved) -> Iterator[tuple[str, list[Bar]]]:
    """Yield each case of a file of `benchmarks.read.figures.save`, with its bars.

    A case whose contestants ran in several ways (`native, 3 brokers`) is one case for each way.
    """
    for case in saved["cases"]:
        ways: dict[str, dict[str, list[float]]] = {}
        for contestant, times in case["seconds"].items():
            name, _, way = contestant.partition(", ")
            ways.setdefault(way or case["case"], {})[name] = times
        for way, seconds in ways.items():
            first = median(next(iter(seconds.values())))
            yield way, [Bar(name, times, first / median(times)) for name, times in seconds.items()]


def draw(saved: Saved) -> Figure:
    """Draw the cases one below the other."""
    measure = saved.get("measure", "seconds")
    cases = list(bars(saved))
    count = sum(len(found) + 1 for _, found in cases)
    figure, axes = pyplot.subplots(figsize=(8, BAR_INCHES * count + 1.2))
    place, ticks, shown = 0, [], set[str]()
    for case, found in cases:
        ticks.append((place + (len(found) - 1) / 2, case))
        for number, bar in enumerate(found):
            middle = median(bar.seconds)
            colour = COLOURS.get(bar.contestant) or OTHERS[number % len(OTHERS)]
            label = "" if bar.contestant in shown else bar.contestant
            shown.add(bar.contestant)
            spread = [[middle - min(bar.seconds)], [max(bar.seconds) - middle]]
            whiskers = {"ecolor": "#52606d", "lw": 0.8}
            axes.barh(place, middle, 0.9, color=colour, xerr=spread, error_kw=whiskers, label=label)
            if number and bar.contestant != "floor":
                axes.text(max(bar.seconds), place, f"  {bar.ratio:.1f}×", va="center", fontsize=7)
            place += 1
        place += 1
    axes.set_yticks([at for at, _ in ticks], [case for _, case in ticks], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=f"{measure}, less is better", xlim=(0, None))
    axes.margins(y=0.01)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(shown))
    figure.suptitle("Reading a topic: kafkagroup beside Spark's own connector")
    return figure


def draw_summary(saved: Saved) -> Figure:
    """Draw the figures of README and home: the JVM connector's time of each job, and kafkagroup's part of this time."""
    jobs: list[dict[str, str]] = saved["summary"]
    figure, axes = pyplot.subplots(figsize=(8, 0.62 * len(jobs) + 1.1))
    names = (("jvm", "JVM connector", "jvm"), ("kafkagroup", "kafkagroup", "native"))
    for row, (key, label, colour) in enumerate(names):
        places = [job + 0.38 * row for job in range(len(jobs))]
        parts = [float(job[key]) / float(job["jvm"]) for job in jobs]
        axes.barh(places, parts, 0.36, color=COLOURS[colour], label=label)
        for place, part, job in zip(places, parts, jobs, strict=True):
            faster = f", {job['faster']}×" if row else ""
            axes.text(part, place, f"  {job[key]} {job['unit']}{faster}", va="center", fontsize=8)
    axes.set_yticks([job + 0.19 for job in range(len(jobs))], [job["what"] for job in jobs], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.15), xlabel="part of the JVM connector's time, less is better")
    axes.legend(loc="lower center", bbox_to_anchor=(0.3, 1), ncols=2)
    figure.suptitle("kafkagroup beside Spark's own Kafka connector")
    return figure


LINES = ("join", "rejoin", "restart")
HEARTBEAT_SECONDS = 10


def draw_growth(saved: Saved) -> Figure:
    """Draw the figures of `benchmarks.group --scale`: CPU seconds by slots, and by partitions."""
    cases: list[dict[str, Any]] = saved["group"]
    most = {what: max(case[what] for case in cases) for what in ("slots", "partitions")}
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axes, what, other in zip(panels, most, reversed(most), strict=True):
        shown = sorted((case for case in cases if case[other] == most[other]), key=lambda case: case[what])
        counts = [case[what] for case in shown]
        lines = {name: [median(case["cpu"][name]) for case in shown] for name in LINES}
        lines[f"heartbeats of {HEARTBEAT_SECONDS} s"] = [HEARTBEAT_SECONDS * median(case["core"]) for case in shown]
        for (name, seconds), colour in zip(lines.items(), OTHERS, strict=True):
            axes.plot(counts, seconds, marker="o", markersize=3, color=colour, label=name)
            linear = [seconds[0] * count / counts[0] for count in counts]
            axes.plot(counts, linear, ":", color=colour, lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"{what}, with {most[other]:,} {other}")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.xaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("CPU seconds, less is better")
    panels[1].legend(loc="lower right")
    return figure


def draw_triggers(saved: Saved) -> Figure:
    """Draw the figures of `benchmarks.trigger`: the duration of each trigger, and the records of its micro-batch."""
    run: dict[str, Any] = saved["trigger"]
    triggers, events, target = run["triggers"], run["events"], run["target"]
    since = triggers[0]["ended"] - triggers[0]["seconds"]
    times = [one["ended"] - one["seconds"] - since for one in triggers]
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 5), sharex=True)
    above.axhspan(0.75 * target, 1.25 * target, color="#f7c4a6", alpha=0.5, lw=0)
    above.plot(times, [one["seconds"] for one in triggers], ".-", color=OTHERS[0], lw=0.8)
    above.set(yscale="log", ylabel="seconds of a trigger")
    below.plot(times, [one["rows"] for one in triggers], ".-", color=OTHERS[0], lw=0.8, label="records")
    below.plot(times, [one["left"] for one in triggers], color=OTHERS[3], lw=0.8, label="records left over")
    below.set(yscale="symlog", xlabel="seconds", ylim=(0, None))
    below.legend()
    for event in events:
        for axes in (above, below):
            axes.axvline(event["at"] - since, color="#9aa5b1", lw=0.8, ls=":")
        name = f" {event['name']}"
        above.text(event["at"] - since, 1.0, name, rotation=30, fontsize=7, transform=above.get_xaxis_transform())
    return figure


def draw_skew(saved: Saved) -> Figure:
    """Draw the figures of `benchmarks.skew`: the hour that each partition has reached, by trigger."""
    runs: dict[str, list[list[float]]] = saved["skew"]
    figure, panels = pyplot.subplots(1, len(runs), figsize=(9, 3.6), sharey=True)
    for axes, (name, reached) in zip(panels, runs.items(), strict=True):
        axes.plot(reached, color=COLOURS["native"], lw=0.7, alpha=0.7)
        axes.set(title=name, xlabel="micro-batch", xlim=(0, None), ylim=(0, None))
    panels[0].set_ylabel("hour that a partition has reached")
    return figure


def draw_lag(saved: Saved) -> Figure:
    """Draw the figures of `benchmarks.lag`: the lag by each way to measure it."""
    figure, axes = pyplot.subplots(figsize=(9, 3.6))
    series: dict[str, list[list[float]]] = saved["lag"]
    for (name, looks), mark, colour in zip(
        series.items(), ("-", ".", "+"), (COLOURS["native"], OTHERS[0], OTHERS[3]), strict=True
    ):
        minutes = [second / 60 for second, _ in looks]
        axes.plot(minutes, [lag / 1000 for _, lag in looks], mark, color=colour, lw=1, markersize=5, label=name)
    axes.set(xlabel="minutes", ylabel="lag in thousands of records", xlim=(0, None), ylim=(0, None))
    axes.legend()
    return figure


DRAWINGS = {"group": draw_growth, "trigger": draw_triggers, "summary": draw_summary, "skew": draw_skew, "lag": draw_lag}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("saved", type=Path, help="a file that a benchmark wrote with --save")
    parser.add_argument("picture", type=Path, help="the picture, in SVG")
    given = parser.parse_args()
    saved = json.loads(given.saved.read_text())
    kind = next((kind for kind in DRAWINGS if kind in saved), "")
    figure = DRAWINGS.get(kind, draw)(saved)
    figure.tight_layout()
    # The names of events stand above the axes.
    figure.savefig(given.picture, metadata={"Date": None}, bbox_inches="tight" if kind == "trigger" else None)


if __name__ == "__main__":
    main()
