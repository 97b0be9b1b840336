"""The table of `kafkagroup watch`, which changes in its place on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafkagroup.admin.rows import Rows
from kafkagroup.cli.tables import console
from kafkagroup.cli.watch_rates import WatchMember, WatchRow, duration_text

Show: TypeAlias = Callable[[Rows[WatchRow] | Rows[WatchMember], Mapping[str, str]], None]
"""Shows the rows, and the line of the lag of each group."""

# The columns of fixed width (members, to zero, rebalances) and two cells after each of the nine.
_WITHOUT_LINE = 7 + 7 + 10 + 9 * 2
_SHORTEST_LINE = 5
_STATES = {"Stable": "green", "Empty": "yellow", "Dead": "red"}


@contextmanager
def live() -> Iterator[Show]:
    """Yield the function that shows a sample. Without a terminal, each sample is a table of its own."""
    out = console()
    if not out.is_terminal:
        yield lambda rows, lines: out.print(view(rows, lines, out.width))
        return
    with Live(console=out, auto_refresh=False) as screen:
        yield lambda rows, lines: screen.update(view(rows, lines, out.width), refresh=True)


def view(rows: Rows[WatchRow] | Rows[WatchMember], lines: Mapping[str, str], width: int) -> Table:
    """Return a sample as a table.

    Args:
        rows: The groups, or the members.
        lines: The line of the lag of each group; where the terminal is too narrow, only its end is shown.
        width: The width of the terminal.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    room = width - _WITHOUT_LINE - _width(rows)
    made.add_column("group", overflow="fold")
    if rows.kind is WatchMember:
        made.add_column("member", overflow="fold")
        _add_numbers(made, "partitions", "lag", "in/s", "out/s", "to zero")
    else:
        made.add_column("state", overflow="fold", no_wrap=room >= 0)
        _add_numbers(made, "members", "lag")
        if room >= _SHORTEST_LINE:
            made.add_column("trend", no_wrap=True)
        _add_numbers(made, "in/s", "out/s", "to zero", "rebalances")
    for row in rows:
        speed = (_rate(row.rate_in), _rate(row.rate_out), duration_text(row.seconds_to_zero))
        if isinstance(row, WatchMember):
            name = Text("none", style="yellow") if row.member is None else Text(row.member)
            made.add_row(Text(row.group), name, str(row.partitions), f"{row.lag:,}", *speed)
        else:
            state = Text(row.state, style=_STATES.get(row.state, "yellow"))
            line = (Text(lines.get(row.group, "")[-room:]),) if room >= _SHORTEST_LINE else ()
            made.add_row(Text(row.group), state, str(row.members), f"{row.lag:,}", *line, *speed, str(row.rebalances))
    return made


def _width(rows: Iterable[WatchRow | WatchMember]) -> int:
    """Return how wide the columns are whose width depends on the groups."""
    groups = [row for row in rows if isinstance(row, WatchRow)]
    columns = (
        ["group", *(row.group for row in groups)],
        ["state", *(row.state for row in groups)],
        ["lag", *(f"{row.lag:,}" for row in groups)],
        ["in/s", *(_rate(row.rate_in) for row in groups)],
        ["out/s", *(_rate(row.rate_out) for row in groups)],
    )
    return sum(max(map(len, column)) for column in columns)


def _add_numbers(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
