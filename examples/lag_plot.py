"""A plot of a group's lag over time, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

WIDTH, HEIGHT = 72, 6
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def lag_plot(seen: Sequence[tuple[float, int]], title: str) -> str:
    """Return the plot.

    Args:
        seen: The lag as it was seen, with its time in seconds, by time.
        title: The first line.
    """
    begin, most = seen[0][0], max(1, *(lag for _, lag in seen))
    seconds = max(0.1, seen[-1][0] - begin)
    columns = [0] * WIDTH
    for at, lag in seen:
        # The lag of a column is the last one that was seen until then.
        column = round((at - begin) / seconds * (WIDTH - 1))
        columns[column:] = [lag] * (WIDTH - column)
    # In eighths of a line; a small lag is not hidden.
    bars = [ceil(lag / most * HEIGHT * 8) for lag in columns]
    label = max(len(f"{most:,}"), 1)
    lines = [title]
    for row in reversed(range(HEIGHT)):
        name = f"{most:,}" if row == HEIGHT - 1 else "0" if row == 0 else ""
        cells = "".join(_EIGHTHS[min(8, max(0, bar - 8 * row))] for bar in bars).rstrip()
        lines.append(f"{name:>{label}} ┤{cells}".rstrip())
    end = f"{seconds:.0f} s"
    return "\n".join([*lines, " " * label + " └" + "─" * WIDTH, f"{'':{label}}  0 s{end:>{WIDTH - 3}}"])
