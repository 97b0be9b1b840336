"""The commands `kafkagroup watch | plot`: groups while they run, and pictures of recorded samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    OutputOption,
    check_regex,
    ctrl_c,
    exit_on_error,
    note,
)
from kafkagroup.cli.output import Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import Groups, Rows
    from kafkagroup.cli.tables import Show
    from kafkagroup.cli.watch_rates import History, WatchMember, WatchRow


@with_connection
def watch(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", show_default=False, help="The groups to watch.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Also all groups whose id matches somewhere.")
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, metavar="SECONDS", help="The time between two samples.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N samples.")
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="Show a row for each member instead of each group.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch groups: lag, rates of writing and committing, time until the lag is zero, rebalances. Ends with Ctrl-C.

    With -o json each sample is one line with an array; with -o csv each row is one line.
    """
    check_regex(pattern)
    if not groups and pattern is None:
        raise typer.BadParameter("is missing: name groups, or give --regex", param_hint="GROUP")
    with exit_on_error():
        from kafkagroup.admin import Groups

        client = Groups(connection.settings())
        names = list(dict.fromkeys(groups or ()))
        try:
            with ctrl_c() as pressed, _shown(output) as show:
                _run(client, names, pattern, interval, count, show, pressed, members=members)
        except KeyboardInterrupt:
            # This is how the command ends.
            pass


def _run(
    groups: Groups,
    names: Sequence[str],
    pattern: str | None,
    interval: float,
    count: int | None,
    show: Show,
    pressed: threading.Event,
    *,
    members: bool,
) -> None:
    from kafka_source.errors import RetriableError
    from kafkagroup.admin import Rows
    from kafkagroup.admin.group_requests import unknown_group
    from kafkagroup.cli.watch_rates import GroupSample, History, WatchMember, WatchRow

    histories: dict[str, History] = {}
    done = 0
    while True:
        begun = time.monotonic()
        try:
            chosen = _chosen(groups, names, pattern)
            found = groups.snapshot(chosen, must_exist=False)
        except RetriableError as error:
            if not done:
                raise
            # Brokers restart, and somebody who watches wants to see when they are back.
            note(f"No sample: {error}")
        else:
            at = time.monotonic()
            rows = []
            for name, (group, lag) in found.items():
                if group is not None:
                    rows.append(histories.setdefault(name, History()).add(GroupSample.from_group(group, lag, at)))
                elif histories.pop(name, None) is not None:
                    # The other groups are watched on, and this one too if it is created again.
                    note(f"Group {name} does not exist any more.")
                elif not done and name in names:
                    # Somebody has mistyped it.
                    raise unknown_group(name)
            if members:
                show(Rows(WatchMember, [one for row in rows for one in histories[row.group].members()]), {})
            else:
                show(Rows(WatchRow, rows), {row.group: histories[row.group].line() for row in rows})
            done += 1
        if (count is not None and done >= count) or pressed.is_set():
            return
        time.sleep(max(0.0, begun + interval - time.monotonic()))


def _chosen(groups: Groups, names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the named groups, and those that match now."""
    if pattern is None:
        return list(names)
    from kafkagroup.admin.group_requests import is_consumer_group

    matching = [one.group for one in groups.list(pattern=pattern) if is_consumer_group(one)]
    return list(dict.fromkeys([*names, *matching]))


@contextmanager
def _shown(output: Output) -> Iterator[Show]:
    """Yield the function that shows a sample: a table that changes in its place on a terminal, else lines."""
    if output is Output.JSON:
        yield _json_line
    elif output is Output.CSV:
        yield _csv_lines()
    else:
        from kafkagroup.cli.tables import live

        with live() as show:
            yield show


def _json_line(rows: Rows[WatchRow] | Rows[WatchMember], _: Mapping[str, str]) -> None:
    import json

    typer.echo(json.dumps(rows.records()))


def _csv_lines() -> Show:
    """Return the function that writes the names of the columns once."""
    from kafkagroup.cli.common import as_csv

    begun = False

    def show(rows: Rows[WatchRow] | Rows[WatchMember], _: Mapping[str, str]) -> None:
        nonlocal begun
        text = as_csv(rows)
        typer.echo(text.partition("\n")[2] if begun else text, nl=False)
        begun = True

    return show


class Picture(str, Enum):
    """The pictures; the values are the names of the functions of `kafkagroup.plots`."""

    OVERVIEW = "overview"
    LAG = "lag"
    THROUGHPUT = "throughput"
    ASSIGNMENT = "assignment"
    LATENCY = "latency"


def plot(
    file: Annotated[Path, typer.Argument(help="The samples that `metrics.start(spark, file=…)` has written.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture; its ending names the format: png, svg, pdf.")
    ],
    picture: Annotated[Picture, typer.Option("--picture", "-p", help="Which picture to draw.")] = Picture.OVERVIEW,
    query: Annotated[str | None, typer.Option(help="The query's name; else the one with the most samples.")] = None,
    source: Annotated[int | None, typer.Option(help="The number of the source in the query.")] = None,
) -> None:
    """Draw a file of samples: lag, throughput, assignment and latency over time. Needs the extra `plots`."""
    with exit_on_error():
        # matplotlib takes half a second to load, and needs an extra.
        from kafkagroup import plots
        from kafkagroup.metrics import read_samples

        draw = getattr(plots, picture.value)
        figure = draw(read_samples(file), query=query, source=source)
        try:
            figure.savefig(output, dpi=150)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--output") from None
        typer.echo(f"Wrote {output}.")
