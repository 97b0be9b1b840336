"""Draw lag, throughput, assignment and latency, each as a `Figure` that notebooks show; pyplot's state is not used."""

import io
from collections.abc import Sequence
from datetime import datetime, timezone

from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import SymLogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from kafkagroup.metrics.sample import Sample
from kafkagroup.plots import figures_over_time as over_time

_WIDTH = 12.0
_ROW_HEIGHT = 0.22
_THROUGHPUT = (2.0, 1.5)
_LATENCY = 2.6
# The margin of each axes, for the title above and the times below.
_MARGIN = 0.55
_MAX_LABELS = 40
_MAX_NAMED_REBALANCES = 12
_MAX_SLOTS_IN_LEGEND = 8
_REBALANCE = "#6a3d9a"
_READ, _WRITTEN, _QUOTA, _THROTTLED, _ABSENT = "#1f78b4", "#999999", "#e31a1c", "#fb9a99", "#ececec"


class Picture(Figure):
    """A figure that notebooks show, even without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def lag(samples: Sequence[Sample], *, query: str | None = None, source: int | None = None) -> Figure:
    """Draw the lag by partition over time: the sum as a line, and each partition as a row of a heat map.

    Args:
        samples: From `kafkagroup.metrics.read_samples`.
        query: The query's name or id; None: the query with the most samples.
        source: The number of the source; None: the source with the most samples.

    Raises:
        InvalidConfigurationError: There are no samples of this query and source.
    """
    mine = over_time.of_one_source(samples, query, source)
    heights = _lag_heights(mine)
    figure, axes = _picture(heights, mine)
    _draw_lag(figure, axes, mine)
    return figure


def throughput(samples: Sequence[Sample], *, query: str | None = None, source: int | None = None) -> Figure:
    """Draw records and bytes a second against the quota; arguments and errors as in `lag`."""
    mine = over_time.of_one_source(samples, query, source)
    figure, axes = _picture(_THROUGHPUT, mine)
    _draw_throughput(axes, over_time.batches_of(mine))
    return figure


def assignment(samples: Sequence[Sample], *, query: str | None = None, source: int | None = None) -> Figure:
    """Draw the slots of the partitions over time, with the rebalances; arguments and errors as in `lag`."""
    mine = over_time.of_one_source(samples, query, source)
    figure, (axes,) = _picture([_assignment_height(mine)], mine)
    _draw_assignment(axes, over_time.batches_of(mine))
    return figure


def latency(samples: Sequence[Sample], *, query: str | None = None, source: int | None = None) -> Figure:
    """Draw the time from a record's production to the commit of its offset; arguments and errors as in `lag`.

    The production time is estimated from end offsets at each micro-batch, most exactly if micro-batches are frequent.
    """
    mine = over_time.of_one_source(samples, query, source)
    figure, (axes,) = _picture([_LATENCY], mine)
    _draw_latency(axes, over_time.batches_of(mine))
    return figure


def overview(samples: Sequence[Sample], *, query: str | None = None, source: int | None = None) -> Figure:
    """Draw all four pictures, one below the other; arguments and errors as in `lag`."""
    mine = over_time.of_one_source(samples, query, source)
    # One column of axes, so that a time is at the same place in all axes.
    figure, axes = _picture([*_lag_heights(mine), *_THROUGHPUT, _assignment_height(mine), _LATENCY], mine)
    _draw_lag(figure, axes[:2], mine)
    _draw_throughput(axes[2:4], over_time.batches_of(mine))
    _draw_assignment(axes[4], over_time.batches_of(mine))
    _draw_latency(axes[5], over_time.batches_of(mine))
    return figure


def _picture(heights: Sequence[float], samples: Sequence[Sample]) -> tuple[Picture, Sequence[Axes]]:
    """Return a figure with axes of these heights (in inches), one below the other, over the time of the samples."""
    figure = Picture(figsize=(_WIDTH, sum(heights) + _MARGIN * len(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))
    grid[0, 0].set_xlim(*_dates(over_time.span_of(samples)))
    return figure, list(grid[:, 0])


def _lag_heights(samples: Sequence[Sample]) -> list[float]:
    return [1.5, max(1.0, _ROW_HEIGHT * min(_MAX_LABELS, len(over_time.partitions_of(samples))))]


def _assignment_height(samples: Sequence[Sample]) -> float:
    return max(1.0, 1.2 * _ROW_HEIGHT * min(_MAX_LABELS, len(over_time.partitions_of(samples))))


# ---- the drawings


def _draw_lag(figure: Figure, both: Sequence[Axes], samples: Sequence[Sample]) -> None:
    total, each = both
    samples = over_time.looks_of(samples)
    partitions, edges = over_time.partitions_of(samples), _dates(over_time.edges_of(samples))
    # The query may have had no partition in any sample.
    rows = over_time.lag_rows(samples) or [[float("nan")] * len(samples)]
    sums = [sum(one.lag for one in sample.partitions.values()) for sample in samples]
    total.stairs(sums, edges, fill=True, color=_READ, alpha=0.35)
    total.stairs(sums, edges, color=_READ)
    _title(total, samples, "lag")
    total.set_ylabel("offsets, sum")
    total.set_ylim(bottom=0)
    total.yaxis.set_major_formatter(FuncFormatter(_short))
    highest = max([1.0, *(value for row in rows for value in row if value == value)])
    colours = colormaps["YlOrRd"].with_extremes(bad=_ABSENT)
    mesh = each.pcolormesh(
        edges,
        [n - 0.5 for n in range(len(rows) + 1)],
        rows,
        cmap=colours,
        norm=SymLogNorm(linthresh=1.0, vmin=0.0, vmax=highest),
        rasterized=True,
    )
    bar = figure.colorbar(mesh, ax=[total, each], pad=0.01, format=FuncFormatter(_short))
    bar.set_label("offsets")
    bar.minorticks_off()
    _partition_axis(each, [f"{tp.topic}-{tp.partition}" for tp in partitions])
    _time_axis(each)
    for axes in (total, each):
        _rebalance_lines(axes, samples, named=axes is total)


def _draw_throughput(both: Sequence[Axes], samples: Sequence[Sample]) -> None:
    records, size = both
    rates = over_time.rates_of(samples)
    edges = _dates(rates.edges)
    records.stairs(rates.written, edges, color=_WRITTEN, label="written by producers", baseline=None)
    records.stairs(rates.read, edges, color=_READ, label="read", linewidth=1.6, baseline=None)
    _quota_line(records, edges, rates.quota_records)
    _title(records, samples, "throughput")
    records.set_ylabel("offsets a second")
    measured = [float("nan") if value is None else value for value in rates.bytes]
    if any(value is not None for value in rates.bytes):
        size.stairs(measured, edges, color=_READ, label="read", linewidth=1.6, baseline=None)
        _quota_line(size, edges, rates.quota_bytes)
    else:
        size.text(0.5, 0.5, "only queries with a quota count bytes", ha="center", va="center", transform=size.transAxes)
    size.set_ylabel("bytes a second")
    _time_axis(size)
    for axes in (records, size):
        for begin, end, is_throttled in zip(edges[:-1], edges[1:], rates.throttled, strict=True):
            if is_throttled:
                axes.axvspan(begin, end, color=_THROTTLED, alpha=0.35, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
        _rebalance_lines(axes, samples, named=False)
    handles, labels = records.get_legend_handles_labels()
    if any(value is not None for value in rates.quota_bytes) and "quota" not in labels:
        handles, labels = [*handles, Line2D([], [], color=_QUOTA, linestyle="--")], [*labels, "quota"]
    if any(rates.throttled):
        handles, labels = [*handles, Patch(color=_THROTTLED, alpha=0.35)], [*labels, "whole quota used"]
    _legend_above(records, handles, labels)


def _draw_assignment(axes: Axes, samples: Sequence[Sample]) -> None:
    partitions = over_time.partitions_of(samples)
    holds = over_time.holds_of(samples)
    rows = {tp: number for number, tp in enumerate(partitions)}
    slots = sorted({held.slot for held in holds})
    colour = {slot: _slot_colour(number, len(slots)) for number, slot in enumerate(slots)}
    for held in holds:
        begin, end = _dates([held.start, held.end])
        axes.broken_barh(
            [(begin, end - begin)], (rows[held.partition] - 0.4, 0.8), color=colour[held.slot], linewidth=0
        )
    _title(axes, samples, "which slot held which partition")
    _partition_axis(axes, [f"{tp.topic}-{tp.partition}" for tp in partitions])
    axes.set_facecolor(_ABSENT)
    _time_axis(axes)
    _rebalance_lines(axes, samples, named=True)
    shown = slots[:_MAX_SLOTS_IN_LEGEND]
    named = [Patch(color=colour[slot], label="no group" if slot < 0 else f"slot {slot}") for slot in shown]
    more = [Patch(color="none", label=f"and {len(slots) - len(shown)} more")] if len(slots) > len(shown) else []
    absent = [Patch(color=_ABSENT, label="not this query's")]
    patches = [*named, *more, *absent]
    _legend_above(axes, patches, [str(patch.get_label()) for patch in patches])


def _draw_latency(axes: Axes, samples: Sequence[Sample]) -> None:
    found = over_time.latencies_of(samples)
    _title(axes, samples, "time from produce to commit")
    axes.set_ylabel("seconds")
    if found:
        times = _dates([one.at for one in found])
        axes.fill_between(
            times, [one.newest for one in found], [one.oldest for one in found], color=_READ, alpha=0.2, linewidth=0
        )
        axes.plot(times, [one.oldest for one in found], color=_READ, alpha=0.6, linewidth=0.8, label="oldest record")
        axes.plot(times, [one.median for one in found], color=_READ, linewidth=1.8, label="median")
        middle = sorted(one.median for one in found)
        late = sorted(one.oldest for one in found)
        said = f"median {_seconds(middle[len(middle) // 2])}, oldest record of a micro-batch up to {_seconds(late[-1])}"
        axes.text(0.01, 0.97, said, ha="left", va="top", transform=axes.transAxes, fontsize="small")
        _legend_above(axes, *axes.get_legend_handles_labels())
        axes.set_ylim(0, late[-1] * 1.2 or 1.0)
        axes.grid(axis="y", alpha=0.3)
    else:
        said = "no micro-batch with new records was committed by the driver"
        axes.text(0.5, 0.5, said, ha="center", va="center", transform=axes.transAxes)
    _time_axis(axes)
    _rebalance_lines(axes, samples, named=False)


# ---- what they share


def _title(axes: Axes, samples: Sequence[Sample], what: str) -> None:
    first = samples[0]
    of = "" if first.group is None else f" in group {first.group}"
    number = f", source {first.source}" if any(one.source for one in samples) else ""
    axes.set_title(f"{first.query}{of}{number}: {what}", loc="left", fontsize="medium", fontweight="bold", pad=16)


def _rebalance_lines(axes: Axes, samples: Sequence[Sample], *, named: bool) -> None:
    begin, end = samples[0].at, over_time.edges_of(samples)[-1]
    shown = [r for r in over_time.rebalances_of(samples) if begin <= r.at_ms / 1000 <= end]
    for rebalance in shown:
        (at,) = _dates([rebalance.at_ms / 1000])
        axes.axvline(at, color=_REBALANCE, linewidth=0.9, linestyle=(0, (4, 2)))
        if named and len(shown) <= _MAX_NAMED_REBALANCES:
            axes.annotate(
                rebalance.cause.value,
                (at, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize="x-small",
                color=_REBALANCE,
            )


def _partition_axis(axes: Axes, names: Sequence[str]) -> None:
    step = max(1, -(-len(names) // _MAX_LABELS))
    axes.set_yticks(range(0, len(names), step), names[::step], fontsize="x-small")
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)


def _time_axis(axes: Axes) -> None:
    """Show the time below these axes, even if other axes below share the time axis."""
    locator = AutoDateLocator(tz=timezone.utc)
    day = "%Y-%b-%d"
    # The part of the date that the ticks do not show, from years to seconds.
    offsets = ["UTC", "%Y UTC", "%Y-%b UTC", f"{day} UTC", f"{day} UTC", f"{day} %H:%M UTC"]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc, offset_formats=offsets))
    axes.tick_params(labelbottom=True)
    axes.xaxis.offsetText.set_fontsize("small")


def _legend_above(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    axes.legend(
        handles,
        labels,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        fontsize="small",
        frameon=False,
        ncols=len(handles),
        # Room for the names of rebalances below the legend.
        borderaxespad=0.9,
        columnspacing=1.2,
        handlelength=1.4,
    )


def _quota_line(axes: Axes, edges: Sequence[float], quota: Sequence[float | None]) -> None:
    if any(value is not None for value in quota):
        values = [float("nan") if value is None else value for value in quota]
        axes.stairs(values, edges, color=_QUOTA, linestyle="--", label="quota", baseline=None)


def _slot_colour(number: int, count: int) -> tuple[float, float, float, float]:
    if count <= 10:
        return colormaps["tab10"](number)
    return colormaps["turbo"](number / max(1, count - 1))


def _dates(times: Sequence[float]) -> list[float]:
    return [float(date2num(datetime.fromtimestamp(at, timezone.utc))) for at in times]


def _short(value: float, _: int | None = None) -> str:
    """Return a short form of a number: 1500 as 1.5k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"
