"""A plot of a group's lag over time, for a terminal."""

from collections.abc import Sequence
from math import ceil

WIDTH, HEIGHT = 72, 6
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def lag_plot(seen: Sequence[tuple[float, int]], title: str) -> str:
    """Return the plot.

    Args:
        seen: Samples of the lag in the order of their times: the time in seconds, and the lag.
        title: The first line.
    """
    begin, most = seen[0][0], max(1, *(lag for _, lag in seen))
    seconds = max(0.1, seen[-1][0] - begin)
    columns = [0] * WIDTH
    for at, lag in seen:
        # A column shows the latest sample at or before the time of the column.
        column = round((at - begin) / seconds * (WIDTH - 1))
        columns[column:] = [lag] * (WIDTH - column)
    # The unit is an eighth of a line. A small lag is rounded up, so that it is visible.
    bars = [ceil(lag / most * HEIGHT * 8) for lag in columns]
    label = max(len(f"{most:,}"), 1)
    lines = [title]
    for row in reversed(range(HEIGHT)):
        name = f"{most:,}" if row == HEIGHT - 1 else "0" if row == 0 else ""
        cells = "".join(_EIGHTHS[min(8, max(0, bar - 8 * row))] for bar in bars).rstrip()
        lines.append(f"{name:>{label}} ┤{cells}".rstrip())
    end = f"{seconds:.0f} s"
    return "\n".join([*lines, " " * label + " └" + "─" * WIDTH, f"{'':{label}}  0 s{end:>{WIDTH - 3}}"])
