"""The commands `kafkagroup watch | healthcheck | plot`: groups while they run, and pictures of recorded samples."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    BOUND_EXCEEDED,
    GroupArgument,
    GroupOption,
    OutputOption,
    Topics,
    check_regex,
    ctrl_c,
    exit_on_error,
    note,
    note_idle,
    one_group,
    parse_topics,
)
from kafkagroup.cli.output import Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from assignors.model import TopicPartition
    from kafkagroup.admin import Groups, PartitionLag, Rows
    from kafkagroup.admin.watch_rates import History, WatchRows
    from kafkagroup.cli.tables import Show

    Export = Callable[[Mapping[str, Rows[PartitionLag]], float], None]

#: The pause of `healthcheck` between two samples.
_LOOK_EVERY_SECONDS = 1.0


@with_connection
def watch(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", show_default=False, help="The groups to watch.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Also all groups whose id contains a match of REGEX.")
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
    skew: Annotated[
        bool,
        typer.Option(
            "--skew",
            help="For each partition with lag, show the timestamp of the next record, and its difference from the "
            "lowest of these timestamps in its group. Reads one record of each partition. A partition is left out "
            "if this record has no timestamp, or one in nanoseconds.",
        ),
    ] = False,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="[HOST:]PORT",
            help="Export the lag to Prometheus, with the metric names of `metrics.start`. Needs the extra `metrics`.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch groups until Ctrl-C: lag, rates of writing and committing, time until the lag is zero, rebalances.

    With -o json each sample is one line with an array; with -o csv each row is one line.
    """
    check_regex(pattern)
    if not groups and pattern is None:
        raise typer.BadParameter("is missing: name groups, or give --regex", param_hint="GROUP")
    with exit_on_error():
        from kafkagroup.admin import Groups

        client = Groups(connection.settings())
        names = list(dict.fromkeys(groups or ()))
        look = None
        if skew:
            from kafkagroup.admin.next_records import NextTimes

            look = NextTimes(connection.settings()).look
        try:
            with ctrl_c() as pressed, _shown(output) as show, _exported(prometheus) as export:
                _run(
                    client,
                    names,
                    pattern,
                    interval,
                    count,
                    show,
                    export,
                    pressed,
                    look,
                    members=members,
                    waits=prometheus is not None,
                )
        except KeyboardInterrupt:
            # Ctrl-C ends the command.
            pass


def _run(
    groups: Groups,
    names: Sequence[str],
    pattern: str | None,
    interval: float,
    count: int | None,
    show: Show,
    export: Export,
    pressed: threading.Event,
    times: Callable[[Iterable[PartitionLag]], Mapping[TopicPartition, int]] | None,
    *,
    members: bool,
    waits: bool,
) -> None:
    from kafka_source.errors import RetriableError
    from kafkagroup.admin import Rows
    from kafkagroup.admin.group_requests import unknown_group
    from kafkagroup.admin.watch_rates import GroupSample, History, WatchMember, WatchPartition, WatchRow

    histories: dict[str, History] = {}
    done = 0
    while True:
        begun = time.monotonic()
        try:
            chosen, wall = _chosen(groups, names, pattern), time.time()
            found = groups.snapshot(chosen, must_exist=False)
            next_times = {name: times(lag) for name, (_, lag) in found.items()} if times else {}
        except RetriableError as error:
            if not done:
                raise
            # Continue: the operator wants to see when the brokers are back.
            note(f"No sample: {error}")
        else:
            at = time.monotonic()
            rows = []
            for name, (group, lag) in found.items():
                if group is not None:
                    rows.append(histories.setdefault(name, History()).add(GroupSample.from_group(group, lag, at)))
                elif histories.pop(name, None) is not None:
                    # Continue with the other groups, and with this group if it is created again.
                    note(f"Group {name} no longer exists.")
                elif not done and name in names and not waits:
                    # The name is misspelt.
                    raise unknown_group(name)
            export({name: lag for name, (group, lag) in found.items() if group is not None}, wall)
            if times:
                shown = (WatchPartition.of_group(r.group, histories[r.group].lag(), next_times[r.group]) for r in rows)
                show(Rows(WatchPartition, itertools.chain.from_iterable(shown)), {})
            elif members:
                show(Rows(WatchMember, [one for row in rows for one in histories[row.group].members()]), {})
            else:
                show(Rows(WatchRow, rows), {row.group: histories[row.group].line() for row in rows})
            done += 1
        if (count is not None and done >= count) or pressed.is_set():
            return
        time.sleep(max(0.0, begun + interval - time.monotonic()))


def _chosen(groups: Groups, names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the named groups, and the groups whose ids currently match the pattern."""
    if pattern is None:
        return list(names)
    from kafkagroup.admin.group_requests import is_consumer_group

    matching = [one.group for one in groups.list(pattern=pattern) if is_consumer_group(one)]
    return list(dict.fromkeys([*names, *matching]))


@contextmanager
def _exported(address: str | None) -> Iterator[Export]:
    """Yield the function that exports the groups' lag to Prometheus; without an address, the function does nothing."""
    if address is None:
        yield lambda _lags, _at: None
        return
    from kafkagroup.metrics.group_meter import GroupMeter
    from kafkagroup.metrics.start import prometheus_endpoint

    endpoint, meter = prometheus_endpoint(address if ":" in address else f"127.0.0.1:{address}"), GroupMeter()
    note(f"Prometheus: http://{endpoint.address}/metrics")
    try:
        yield lambda lags, at: endpoint.export(meter.look(lags, at))
    finally:
        endpoint.close()


@contextmanager
def _shown(output: Output) -> Iterator[Show]:
    """Yield the function that shows a sample: on a terminal a table that changes in place, else lines."""
    if output in (Output.JSON, Output.JSONL):
        yield _json_line
    elif output is Output.CSV:
        yield _csv_lines()
    else:
        from kafkagroup.cli.tables import live

        with live() as show:
            yield show


def _json_line(rows: WatchRows, _: Mapping[str, str]) -> None:
    import json

    typer.echo(json.dumps(rows.records()))


def _csv_lines() -> Show:
    """Return a function that writes samples as CSV, with the column names only before the first sample."""
    from kafkagroup.cli.common import as_csv

    begun = False

    def show(rows: WatchRows, _: Mapping[str, str]) -> None:
        nonlocal begun
        text = as_csv(rows)
        typer.echo(text.partition("\n")[2] if begun else text, nl=False)
        begun = True

    return show


@with_connection
def healthcheck(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    within: Annotated[
        float,
        typer.Option(
            "--within",
            min=1.0,
            metavar="SECONDS",
            help="How long the committed offset of a partition with lag may stay the same.",
        ),
    ] = 60.0,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="Sample once, and store in FILE the time at which each offset last advanced.",
        ),
    ] = None,
    unreachable_ok: Annotated[
        bool, typer.Option("--unreachable-ok", help="Exit with code 0 if the brokers do not answer.")
    ] = False,
) -> None:
    """Probe whether a group makes progress: each partition's committed offset advances, or its lag is 0.

    A paused or stopped group passes too. The exit code is 0 for progress, 3 for a stalled group, and 1 if the brokers
    do not answer. Without --state, the command samples for up to --within seconds, and ends when each partition's
    offset has advanced or its lag is 0.
    """
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    with exit_on_error():
        from kafka_source.errors import RetriableError
        from kafkagroup.admin import Groups, halt_of_group

        settings = connection.settings()
        groups = Groups(settings)

        def look() -> list[PartitionLag]:
            found = groups.lag(name, selection.partitions, topics=selection.topics)
            return [row for row in found if selection.has(row.topic, row.partition)]

        try:
            if (halt := halt_of_group(settings, name)) is not None:
                typer.echo(f"Group {name} is {halt}: its committed offsets do not advance until `resume`.")
                note_idle(settings, name)
                return
            is_well = _keep_looking(name, look, within) if state is None else _look_once(name, look, within, state)
        except RetriableError as error:
            if not unreachable_ok:
                raise
            note(f"The brokers do not answer, so the progress of group {name} is unknown: {error}")
            return
    if not is_well:
        raise typer.Exit(BOUND_EXCEEDED)


def _look_once(group: str, look: Callable[[], list[PartitionLag]], within: float, state: Path) -> bool:
    """Return whether the group has made progress since the samples in a file, and add the current sample."""
    from kafka_source.runtime.shared_files import replace_file
    from kafkagroup.admin import health

    before = None
    if state.exists():
        before = health.from_text(group, state.read_text())
        if before is None:
            note(f"{state} is not the state of a check of group {group}, so the command replaces the file.")
    # Use the wall clock, because another process took the previous sample, perhaps before a restart of the machine.
    at = time.time()
    seen = health.look_again(before or {}, look(), at)
    try:
        replace_file(state, health.to_text(group, seen))
    except OSError as error:
        raise typer.BadParameter(f"cannot be written: {error}", param_hint="--state") from None
    bad = health.stalled(seen, at, within)
    typer.echo(health.sentence(group, seen, bad, at))
    return not bad


def _keep_looking(group: str, look: Callable[[], list[PartitionLag]], within: float) -> bool:
    """Sample for at most `within` seconds; return whether the group makes progress."""
    from kafkagroup.admin import health

    began = time.monotonic()
    seen = health.look_again({}, look(), began)
    # Partitions with lag whose committed offsets have not advanced yet.
    waiting = {tp for tp, one in seen.items() if one.lag > 0}
    at = began
    while waiting and at - began < within:
        time.sleep(min(_LOOK_EVERY_SECONDS, max(0.0, began + within - time.monotonic())))
        rows, at = look(), time.monotonic()
        seen = health.look_again(seen, rows, at)
        waiting &= {tp for tp, one in seen.items() if one.since == began}
    bad = {tp: seen[tp] for tp in waiting}
    typer.echo(health.sentence(group, seen, bad, at))
    return not bad


class Picture(str, Enum):
    """The pictures; the values are the names of the functions of `kafkagroup.plots`."""

    OVERVIEW = "overview"
    LAG = "lag"
    THROUGHPUT = "throughput"
    ASSIGNMENT = "assignment"
    LATENCY = "latency"


def plot(
    file: Annotated[Path, typer.Argument(help="The samples that `metrics.start(spark, file=…)` has written.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture, with the suffix .png, .svg or .pdf.")],
    picture: Annotated[Picture, typer.Option("--picture", "-p", help="The picture to draw.")] = Picture.OVERVIEW,
    query: Annotated[str | None, typer.Option(help="The query; default: the query with the most samples.")] = None,
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
