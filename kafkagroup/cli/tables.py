"""Print rows as tables with rich: widths, colours, and the table of `watch`, which is redrawn in place."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_source.runtime.visible_text import visible
from kafkagroup.admin.rows import columns, optional, time_text
from kafkagroup.admin.watch_rates import WatchMember, WatchPartition, WatchRow, WatchRows, duration_text
from kafkagroup.cli.output import Listing, cell

# In a pipe or a file, no cell is folded, so that grep finds names.
_WIDE = 100_000
_GAP = 2
# The least width of a column of several words, and of a column with a single word, such as an id.
_MIN_TEXT_WIDTH = 12
_MIN_WIDTH = 8


def console() -> Console:
    """Return the console for standard output: coloured on a terminal; elsewhere so wide that nothing is folded."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE
    return Console(width=width, highlight=False)


def print_tables(listings: Iterable[Listing]) -> None:
    """Print a table for each listing. If a listing without rows has the text `empty`, print that text instead."""
    out = console()
    for number, listing in enumerate(listings):
        if number:
            out.print()
        if listing.rows or not listing.empty:
            if listing.title:
                # The table's own title would be as narrow as the table.
                out.print(Text(visible(listing.title), style="bold"))
            out.print(table(listing, out.width))
        else:
            out.print(Text(visible(listing.empty)))


def table(listing: Listing, width: int) -> Table:
    """Return the table of a listing. Long cells are folded where the terminal is too narrow, and never cut."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    every = columns(listing.rows.kind)
    names = [listing.first, *every] if listing.first else list(every)
    shown = {name: every[name] for name in names if name not in listing.hidden}
    headings = [listing.headings.get(name, name.replace("_", " ")) for name in shown]
    rows = [[cell(getattr(row, name)) for name in shown] for row in listing.rows]
    total = [cell(listing.total[name]) if name in listing.total else "" for name in shown]
    numeric = [optional(hint)[0] in (int, float) for hint in shown.values()]
    cells = list(zip(*([headings, *rows] if not listing.total else [headings, *rows, total]), strict=True))
    for heading, is_number, wide in zip(headings, numeric, widths(cells, numeric, width), strict=True):
        made.add_column(
            heading, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number, width=wide
        )
    for row in rows:
        made.add_row(*map(Text, row))
    if listing.total:
        made.add_section()
        made.add_row(*map(Text, total))
    return made


def widths(cells: Sequence[Sequence[str]], numeric: Sequence[bool], width: int) -> list[int]:
    """Return the width of each column, so that the table fits if possible.

    Rich would fold all columns a little, or leave a column out. This function shrinks only the widest column: first the
    widest column with several words, then the widest column without numbers.

    Args:
        cells: The cells of each column, with its heading.
        numeric: Whether a column has numbers.
        width: The width of the terminal.
    """
    wide = [max(map(len, column)) for column in cells]
    of_words = [any(" " in one for one in column[1:]) for column in cells]
    for least, folds in (
        (_MIN_TEXT_WIDTH, [words and not number for words, number in zip(of_words, numeric, strict=True)]),
        (_MIN_WIDTH, [not number for number in numeric]),
    ):
        while sum(wide) + _GAP * len(wide) > width:
            widest = max((at for at, fold in enumerate(folds) if fold), key=wide.__getitem__, default=None)
            if widest is None or wide[widest] <= least:
                break
            wide[widest] -= 1
    return wide


Show: TypeAlias = Callable[[WatchRows, Mapping[str, str]], None]
"""Shows the rows and each group's lag over time."""

# The widths of the fixed columns (members, to zero, rebalances), and two characters after each of the nine columns.
_WITHOUT_LINE = 7 + 7 + 10 + 9 * 2
_SHORTEST_LINE = 5
_STATES = {"Stable": "green", "Empty": "yellow", "Dead": "red"}


@contextmanager
def live() -> Iterator[Show]:
    """Yield the function that shows a sample. Without a terminal, each sample is a table of its own."""
    out = console()
    if not out.is_terminal:
        yield lambda rows, lines: out.print(watch_table(rows, lines, out.width))
        return
    with Live(console=out, auto_refresh=False) as screen:
        yield lambda rows, lines: screen.update(watch_table(rows, lines, out.width), refresh=True)


def watch_table(rows: WatchRows, lines: Mapping[str, str], width: int) -> Table:
    """Return a sample as a table.

    Args:
        rows: The groups, or the members.
        lines: The trend of each group's lag as text; a narrow terminal shows only the end of the text.
        width: The width of the terminal.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    room = width - _WITHOUT_LINE - _width(rows)
    made.add_column("group", overflow="fold")
    if rows.kind is WatchMember:
        made.add_column("member", overflow="fold")
        _add_numbers(made, "partitions", "lag", "in/s", "out/s", "to zero")
    elif rows.kind is WatchPartition:
        made.add_column("partition", overflow="fold")
        _add_numbers(made, "lag", "next record", "ahead")
    else:
        made.add_column("state", overflow="fold", no_wrap=room >= 0)
        _add_numbers(made, "members", "lag")
        if room >= _SHORTEST_LINE:
            made.add_column("trend", no_wrap=True)
        _add_numbers(made, "in/s", "out/s", "to zero", "rebalances")
    for row in rows:
        if isinstance(row, WatchPartition):
            name, at = Text(visible(f"{row.topic}-{row.partition}")), time_text(row.next_timestamp * 1000)
            made.add_row(Text(visible(row.group)), name, f"{row.lag:,}", at, duration_text(row.ahead_seconds))
            continue
        speed = (_rate(row.rate_in), _rate(row.rate_out), duration_text(row.seconds_to_zero))
        if isinstance(row, WatchMember):
            name = Text("none", style="yellow") if row.member is None else Text(visible(row.member))
            made.add_row(Text(visible(row.group)), name, str(row.partitions), f"{row.lag:,}", *speed)
        else:
            state = Text(row.state, style=_STATES.get(row.state, "yellow"))
            line = (Text(lines.get(row.group, "")[-room:]),) if room >= _SHORTEST_LINE else ()
            made.add_row(
                Text(visible(row.group)), state, str(row.members), f"{row.lag:,}", *line, *speed, str(row.rebalances)
            )
    return made


def _width(rows: Iterable[WatchRow | WatchMember | WatchPartition]) -> int:
    """Return the total width of the columns whose width depends on the groups."""
    groups = [row for row in rows if isinstance(row, WatchRow)]
    columns = (
        ["group", *(visible(row.group) for row in groups)],
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
