"""Compute rates, slots and latencies for plots from samples. Times are seconds since 1970. Pure functions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.driver_figures import Rebalance
from kafkagroup.metrics.sample import ProductionCurve, Sample


def of_one_source(samples: Sequence[Sample], query: str | None, source: int | None) -> list[Sample]:
    """Return the samples of one source of a query, by time.

    Args:
        samples: The samples of any queries and sources.
        query: The query's name or id; None: the query with the most samples.
        source: The number of the source; None: the source with the most samples.

    Raises:
        InvalidConfigurationError: The query or source has no samples.
    """
    found = [one for one in samples if query in (None, one.query, one.query_id) and source in (None, one.source)]
    if not found:
        known = sorted({f"{one.query} source {one.source}" for one in samples})
        raise InvalidConfigurationError(
            f"There are no samples of {query or 'any query'}"
            + ("" if source is None else f" source {source}")
            + (f". There are samples of: {', '.join(known)}." if known else ".")
        )
    ((name, number), _) = Counter((one.query, one.source) for one in found).most_common(1)[0]
    mine = [one for one in found if (one.query, one.source) == (name, number)]
    # Samples of several programs are not in order. A replayed micro-batch keeps the time of its first run.
    return sorted(mine, key=lambda one: (one.at, one.batch))


def looks_of(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that show the lag: the lookups of end offsets, or all samples if there are no lookups."""
    return [one for one in samples if one.is_look] or list(samples)


def batches_of(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of micro-batches, or all samples if there are no such samples."""
    return [one for one in samples if not one.is_look] or list(samples)


def partitions_of(samples: Sequence[Sample]) -> list[TopicPartition]:
    """Return all partitions of the samples, sorted."""
    return sorted({tp for one in samples for tp in one.partitions})


def rebalances_of(samples: Sequence[Sample]) -> list[Rebalance]:
    """Return all rebalances of the samples, by time, except for the first join of each run."""
    return sorted(
        (r for one in samples for r in one.rebalances if r.cause.value != "start"),
        key=lambda r: (r.at_ms, r.generation),
    )


def edges_of(samples: Sequence[Sample]) -> list[float]:
    """Return the start of each sample in a picture, and the last sample's end: its start plus the median interval."""
    times = [one.at for one in samples]
    steps = [later - earlier for earlier, later in pairwise(times)]
    return [*times, times[-1] + (median(steps) if steps else max(1.0, samples[-1].seconds))]


def span_of(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the start of the first sample in a picture, and the last end of a lookup or a micro-batch."""
    return samples[0].at, max(edges_of(kind)[-1] for kind in (looks_of(samples), batches_of(samples)))


def lag_rows(samples: Sequence[Sample]) -> list[list[float]]:
    """Return the lag of each partition (rows) at each sample (columns); NaN: the sample lacks the partition."""
    nothing = float("nan")
    return [
        [float(one.partitions[tp].lag) if tp in one.partitions else nothing for one in samples]
        for tp in partitions_of(samples)
    ]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates from each sample to the next sample; None: unknown.

    Attributes:
        edges: The start of each rate, and the end of the last rate.
        read: The rate at which the query read, in offsets a second.
        written: The rate at which producers wrote to the query's partitions, in offsets a second.
        bytes: The rate of reading in bytes a second, as the quota measured it.
        quota_records: The quota in records a second.
        quota_bytes: The quota in bytes a second.
        throttled: Whether the whole quota was used.
    """

    edges: list[float]
    read: list[float]
    written: list[float]
    bytes: list[float | None]
    quota_records: list[float | None]
    quota_bytes: list[float | None]
    throttled: list[bool]


_ALL_USED = 99.0


def rates_of(samples: Sequence[Sample]) -> Rates:
    """Return the rates at which a query read and producers wrote.

    The records of a micro-batch are spread over the time from its start to the start of the next micro-batch.
    """
    edges = edges_of(samples)
    rates = Rates(edges, [], [], [], [], [], [])
    before: Sample | None = None
    for number, one in enumerate(samples):
        after = samples[number + 1] if number + 1 < len(samples) else None
        seconds = max(1e-3, edges[number + 1] - edges[number])
        rates.read.append(sum(p.end - p.start for p in one.partitions.values()) / seconds)
        rates.written.append(_written(before, one))
        # The next micro-batch's offset has the quota's totals.
        rates.bytes.append(None if after is None else _bytes(one, after, seconds))
        rates.quota_records.append(one.quota.get("recordsPerSecond"))
        rates.quota_bytes.append(one.quota.get("bytesPerSecond"))
        rates.throttled.append(one.quota.get("usedPercent", 0.0) >= _ALL_USED)
        before = one
    return rates


def _written(before: Sample | None, now: Sample) -> float:
    if before is None or now.at <= before.at:
        return 0.0
    both = before.partitions.keys() & now.partitions.keys()
    grown = sum(max(0, now.partitions[tp].latest - before.partitions[tp].latest) for tp in both)
    return grown / (now.at - before.at)


def _bytes(now: Sample, after: Sample, seconds: float) -> float | None:
    if not now.quota or not after.quota:
        return None
    had, has = (sum(slot["bytes"] for slot in one.quota["slots"].values()) for one in (now, after))
    # A driver that was started again counts from 0.
    return float(has - had if has >= had else has) / seconds


@dataclass(frozen=True, slots=True)
class Held:
    """A time range in which a slot has a partition."""

    partition: TopicPartition
    slot: int
    start: float
    end: float


def holds_of(samples: Sequence[Sample]) -> list[Held]:
    """Return the slots of each partition over time. Consecutive micro-batches with the same slot become one `Held`."""
    edges = edges_of(samples)
    open_holds: dict[TopicPartition, Held] = {}
    found: list[Held] = []
    for number, one in enumerate(samples):
        start, end = edges[number], edges[number + 1]
        found += [open_holds.pop(tp) for tp in open_holds.keys() - one.partitions.keys()]
        for tp, partition in one.partitions.items():
            known = open_holds.get(tp)
            if known is not None and known.slot == partition.slot:
                open_holds[tp] = Held(tp, known.slot, known.start, end)
            else:
                if known is not None:
                    found.append(known)
                open_holds[tp] = Held(tp, partition.slot, start, end)
    return sorted([*found, *open_holds.values()], key=lambda held: (held.partition, held.start))


@dataclass(frozen=True, slots=True)
class Latency:
    """How long the records of one micro-batch took from their production to the commit of their offsets, in seconds.

    Attributes:
        at: When the commit ended.
        newest: The latency of the newest record.
        median: The median of the records' latencies.
        oldest: The latency of the oldest record.
    """

    at: float
    newest: float
    median: float
    oldest: float


_QUANTILES = 20


def latencies_of(samples: Sequence[Sample]) -> list[Latency]:
    """Return the latency of each committed micro-batch, without records that were written before the first sample."""
    curves: dict[TopicPartition, ProductionCurve] = {}
    for one in samples:
        for tp, partition in one.partitions.items():
            curves.setdefault(tp, ProductionCurve(max_points=None)).observe(one.at, partition.latest)
    found = []
    for number, one in enumerate(samples[:-1]):
        committed = _committed_at(samples[number + 1 :])
        written = [] if committed is None else _written_at(one, curves)
        if committed is not None and written:
            ages = sorted(max(0.0, committed - at) for at in written)
            found.append(Latency(committed, ages[0], median(ages), ages[-1]))
    return found


def _committed_at(later: Sequence[Sample]) -> float | None:
    """Return the time of the first commit in `later`: that of the micro-batch before `later`; None: no commit."""
    return next((one.commits[0].at_ms / 1000 for one in later if one.commits), None)


def _written_at(one: Sample, curves: dict[TopicPartition, ProductionCurve]) -> list[float]:
    """Return when records of a micro-batch were written, for up to 20 evenly spread records of each partition."""
    found = []
    for tp, partition in one.partitions.items():
        step = max(1, (partition.end - partition.start) // _QUANTILES)
        for offset in range(partition.start, partition.end, step):
            at = curves[tp].written_at(offset) if curves[tp].covers(offset) else None
            if at is not None:
                found.append(at)
    return found
