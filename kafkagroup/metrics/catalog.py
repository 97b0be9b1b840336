"""The catalog of all metrics, for the exporters, docs/metrics.md, and the tests of dashboard and alert rules.

Prometheus names follow the conventions of Prometheus (base units, `_total` for counters) and Kafka's terms.
OpenTelemetry names are from its semantic conventions for messaging; the other names begin with `kafkagroup.`.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label of Prometheus, and the attribute of OpenTelemetry with the same value."""

    name: str
    attribute: str
    doc: str


QUERY = Label(
    "query", "kafkagroup.query", "The query's name, or the id of a query without a name; empty for `kafkagroup watch`."
)
SOURCE = Label("source", "kafkagroup.source", "The number of the source in its query, from 0.")
GROUP = Label("group", "messaging.consumer.group.name", "`kafka.group.id`; empty without a group.")
SLOT = Label(
    "slot",
    "kafkagroup.slot",
    "The query's slot (its member of the group) that reads the partition; -1 without a group.",
)
TOPIC = Label("topic", "messaging.destination.name", "The topic.")
PARTITION = Label("partition", "messaging.destination.partition.id", "The partition's number.")
CAUSE = Label("cause", "kafkagroup.rebalance.cause", "Why the slots rejoined; see [causes](#causes-of-rebalances).")
BY = Label("by", "kafkagroup.throttle.by", "`quota`: the query's own quota; `broker`: the brokers' quota (KIP-219).")
PHASE = Label("phase", "kafkagroup.trigger.phase", "Spark's name of a part of a trigger, such as `addBatch`.")
FAILED = Label("failed", "kafkagroup.query.failed", "`true` if the query ended with an exception, else `false`.")
PREFIX = Label("transactional_id_prefix", "kafkagroup.transactional.id.prefix", "The sink's `transactional.id.prefix`.")
STATE = Label("state", "kafkagroup.transaction.state", "`decided`: the sink has decided to commit; else `undecided`.")

_SOURCE = (QUERY, SOURCE, GROUP)
_SLOT = (*_SOURCE, SLOT)
_PARTITION = (*_SLOT, TOPIC, PARTITION)


# Metrics are declared once and compared by identity, because hashes of all fields took most of an update's time.
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric.

    Attributes:
        name: Its name in Prometheus.
        otel: Its name in OpenTelemetry.
        kind: Gauge, counter or histogram.
        unit: Its unit in UCUM, as OpenTelemetry writes it.
        labels: Its labels, in the order of a series' values.
        doc: Its description.
        attributes: Attributes of OpenTelemetry that all its series have.
        buckets: The upper bounds of a histogram's buckets.
    """

    name: str
    otel: str
    kind: Kind
    unit: str
    labels: tuple[Label, ...]
    doc: str
    attributes: tuple[tuple[str, str], ...] = ()
    buckets: tuple[float, ...] = ()


# The upper bounds of the buckets of histograms.
_BUCKETS_IN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

LAG_RECORDS = Metric(
    "kafkagroup_consumer_lag_records",
    "kafkagroup.consumer.lag",
    Kind.GAUGE,
    "{record}",
    _PARTITION,
    "Number of offsets from the end of the last finished micro-batch to the latest known end of the partition.",
)
LAG_SECONDS = Metric(
    "kafkagroup_consumer_lag_seconds",
    "kafkagroup.consumer.lag.time",
    Kind.GAUGE,
    "s",
    _PARTITION,
    "Estimated age of the oldest unread record; 0 if the query has read all records.",
)
POSITION = Metric(
    "kafkagroup_consumer_position",
    "kafkagroup.consumer.position",
    Kind.GAUGE,
    "{record}",
    _PARTITION,
    "The next offset that the query will read.",
)
END_OFFSET = Metric(
    "kafkagroup_partition_end_offset",
    "kafkagroup.partition.end_offset",
    Kind.GAUGE,
    "{record}",
    _PARTITION,
    "The latest known end of the partition; planning with `read_committed` sets it to the last stable offset.",
)
LAG_TIME = Metric(
    "kafkagroup_consumer_lag_timestamp_seconds",
    "kafkagroup.consumer.lag.timestamp",
    Kind.GAUGE,
    "s",
    _SOURCE,
    "The time of the lookup of the end offsets, in seconds since 1970; of several lookups, the earliest time.",
)
RECORDS = Metric(
    "kafkagroup_consumer_records_total",
    "messaging.client.consumed.messages",
    Kind.COUNTER,
    "{message}",
    _PARTITION,
    "Number of offsets that were read. Offsets of transaction markers and of compacted records count too.",
    (("messaging.operation.name", "poll"),),
)
BAD_RECORDS = Metric(
    "kafkagroup_consumer_bad_records_total",
    "kafkagroup.consumer.bad_records",
    Kind.COUNTER,
    "{record}",
    _SOURCE,
    "Records whose values a query with `mode=PERMISSIVE` or `mode=DROPMALFORMED` could not decode.",
)
CORES_NEEDED = Metric(
    "kafkagroup_consumer_cores_needed",
    "kafkagroup.consumer.cores_needed",
    Kind.GAUGE,
    "{core}",
    _SOURCE,
    "Busy seconds of the previous micro-batch's reading tasks, divided by `targetTriggerDuration`; absent without "
    "this option.",
)
BYTES = Metric(
    "kafkagroup_consumer_bytes_total",
    "kafkagroup.consumer.bytes",
    Kind.COUNTER,
    "By",
    _SLOT,
    "Bytes of fetch responses; only of a query with a quota.",
)
THROTTLE = Metric(
    "kafkagroup_consumer_throttle_seconds_total",
    "kafkagroup.consumer.throttle.time",
    Kind.COUNTER,
    "s",
    (*_SLOT, BY),
    "Time that tasks waited before fetches; only of a query with a quota.",
)
COMMIT_LATENCY = Metric(
    "kafkagroup_consumer_commit_latency_seconds",
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    _SOURCE,
    "Duration of the driver's commits of the group's offsets.",
    (("messaging.operation.name", "commit"),),
    _BUCKETS_IN_SECONDS,
)
COMMIT_FAILURES = Metric(
    "kafkagroup_consumer_commit_failures_total",
    "kafkagroup.consumer.commit.failures",
    Kind.COUNTER,
    "{commit}",
    _SOURCE,
    "Failed commits of the driver; the next micro-batch commits the same offsets.",
)
REBALANCES = Metric(
    "kafkagroup_consumer_rebalances_total",
    "kafkagroup.consumer.rebalances",
    Kind.COUNTER,
    "{rebalance}",
    (*_SOURCE, CAUSE),
    "Rebalances in which the query's slots joined or rejoined.",
)
REBALANCE_LATENCY = Metric(
    "kafkagroup_consumer_rebalance_latency_seconds",
    "kafkagroup.consumer.rebalance.duration",
    Kind.HISTOGRAM,
    "s",
    _SOURCE,
    "Duration of a rebalance, from the slots' first request to the last slot's assignment. In the consumer protocol "
    "the duration begins with the brokers' new assignment, and includes the wait for the micro-batch.",
    (),
    _BUCKETS_IN_SECONDS,
)
GENERATION = Metric(
    "kafkagroup_consumer_generation",
    "kafkagroup.consumer.generation",
    Kind.GAUGE,
    "{generation}",
    _SOURCE,
    "The group's generation when the last micro-batch was planned; in the consumer protocol (KIP-848) the highest "
    "epoch of the query's slots.",
)
HALTED = Metric(
    "kafkagroup_consumer_halted",
    "kafkagroup.consumer.halted",
    Kind.GAUGE,
    "1",
    _SOURCE,
    "1 while the group is paused or stopped; else 0.",
)
ASSIGNED = Metric(
    "kafkagroup_consumer_assigned_partitions",
    "kafkagroup.consumer.assigned_partitions",
    Kind.GAUGE,
    "{partition}",
    _SLOT,
    "Partitions of the slot in the last micro-batch.",
)
QUOTA_USED = Metric(
    "kafkagroup_quota_used_ratio",
    "kafkagroup.quota.used",
    Kind.GAUGE,
    "1",
    _SOURCE,
    "The used part of the quota in the current window; at 1 the query is throttled.",
)
QUOTA_BYTES = Metric(
    "kafkagroup_quota_bytes_per_second",
    "kafkagroup.quota.bytes_rate",
    Kind.GAUGE,
    "By/s",
    _SOURCE,
    "The quota in bytes a second; absent without a quota.",
)
QUOTA_RECORDS = Metric(
    "kafkagroup_quota_records_per_second",
    "kafkagroup.quota.records_rate",
    Kind.GAUGE,
    "{record}/s",
    _SOURCE,
    "The quota in records a second; absent without a quota.",
)
TRIGGER = Metric(
    "kafkagroup_query_trigger_duration_seconds",
    "kafkagroup.query.trigger.duration",
    Kind.HISTOGRAM,
    "s",
    (QUERY,),
    "Duration of a trigger that ran a micro-batch (Spark's `triggerExecution`).",
    (),
    _BUCKETS_IN_SECONDS,
)
PHASES = Metric(
    "kafkagroup_query_phase_seconds_total",
    "kafkagroup.query.trigger.phases",
    Kind.COUNTER,
    "s",
    (QUERY, PHASE),
    "Time in each part of the triggers, from Spark's `durationMs`.",
)
INPUT_ROWS = Metric(
    "kafkagroup_query_input_rows_total",
    "kafkagroup.query.input_rows",
    Kind.COUNTER,
    "{row}",
    (QUERY, SOURCE),
    "Rows that Spark got from the source.",
)
LAST_PROGRESS = Metric(
    "kafkagroup_query_last_progress_timestamp_seconds",
    "kafkagroup.query.last_progress",
    Kind.GAUGE,
    "s",
    (QUERY,),
    "When Spark last reported a micro-batch or an idle query, in seconds since 1970; absent after the query's end.",
)
TERMINATIONS = Metric(
    "kafkagroup_query_terminations_total",
    "kafkagroup.query.terminations",
    Kind.COUNTER,
    "{query}",
    (QUERY, FAILED),
    "Queries that have ended.",
)
TRANSACTIONS = Metric(
    "kafkagroup_transactions_open",
    "kafkagroup.transactions.open",
    Kind.GAUGE,
    "{transaction}",
    (PREFIX, STATE),
    "Open transactions of an exactly-once sink, as described by the brokers; only with `transactions=`.",
)
OLDEST_TRANSACTION = Metric(
    "kafkagroup_transactions_oldest_seconds",
    "kafkagroup.transactions.oldest",
    Kind.GAUGE,
    "s",
    (PREFIX,),
    "Age of the sink's oldest open undecided transaction; 0: no such transaction; only with `transactions=`.",
)

METRICS = (
    LAG_RECORDS,
    LAG_SECONDS,
    POSITION,
    END_OFFSET,
    LAG_TIME,
    RECORDS,
    BAD_RECORDS,
    CORES_NEEDED,
    BYTES,
    THROTTLE,
    COMMIT_LATENCY,
    COMMIT_FAILURES,
    REBALANCES,
    REBALANCE_LATENCY,
    GENERATION,
    HALTED,
    ASSIGNED,
    QUOTA_USED,
    QUOTA_BYTES,
    QUOTA_RECORDS,
    TRIGGER,
    PHASES,
    INPUT_ROWS,
    LAST_PROGRESS,
    TERMINATIONS,
    TRANSACTIONS,
    OLDEST_TRANSACTION,
)
"""All metrics, in the order of the documentation."""


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with the values of its labels, in the order of `Metric.labels`."""

    metric: Metric
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A new value of a series: a gauge's value, a counter's growth, or one observation of a histogram."""

    series: Series
    value: float


def point(metric: Metric, value: float, *labels: object) -> Point:
    """Return a point of a metric with these values of its labels.

    Raises:
        ValueError: The number of labels differs from the metric's.
    """
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has {len(metric.labels)} labels, not {len(labels)}")
    return Point(Series(metric, tuple(map(str, labels))), float(value))


def as_markdown() -> str:
    """Return a table of all metrics, and a table of their labels."""
    labels: dict[str, Label] = {label.name: label for metric in METRICS for label in metric.labels}
    rows = [
        "| metric | type | labels | OpenTelemetry | what it is |",
        "| --- | --- | --- | --- | --- |",
        *map(_row, METRICS),
        "",
        "| label | attribute of OpenTelemetry | what it is |",
        "| --- | --- | --- |",
        *(f"| `{label.name}` | `{label.attribute}` | {label.doc} |" for label in labels.values()),
    ]
    return "\n".join(rows) + "\n"


def _row(metric: Metric) -> str:
    # The page states once that all metrics of consumers and quotas have the labels of the source.
    own = metric.labels[len(_SOURCE) :] if metric.labels[: len(_SOURCE)] == _SOURCE else metric.labels
    labels = ", ".join(label.name for label in own)
    attributes = "".join(f", `{name}={value}`" for name, value in metric.attributes)
    return (
        f"| `{metric.name}` | {metric.kind.value} | {labels} | `{metric.otel}` in `{metric.unit}`{attributes} "
        f"| {metric.doc} |"
    )
