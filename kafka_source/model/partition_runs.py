"""Partitions in a short form for log lines: `orders:0-3,7 payments:0`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assignors.model import TopicPartition


def brief(partitions: Iterable[TopicPartition]) -> str:
    """Return sorted partitions in the short form; `none` if there are none."""
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return " ".join(f"{topic}:{_runs(numbers)}" for topic, numbers in by_topic.items()) or "none"


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
