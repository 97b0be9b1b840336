"""The workloads of batch reads, and their bars."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.read.topics import Load


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, and the bars for other contestants' times divided by the native engine's.

    Attributes:
        name: The name of the case.
        load: The topic that is read.
        bar: The bar beside the JVM connector with its defaults.
        tuned_bar: The bar beside the tuned JVM connector.
        floor_bar: The bar beside the floor, the share of Spark's possible speed.
        value_only: Read only the values.
        aggregate: Aggregate the rows in Spark, instead of a noop sink.
        options: Further options of all contestants.
    """

    name: str
    load: Load
    bar: float | None = None
    tuned_bar: float | None = None
    floor_bar: float | None = None
    value_only: bool = False
    aggregate: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return the number of rows that a contestant must return."""
        committed = self.options.get(_ISOLATION) == "read_committed"
        return self.load.records // 2 if self.load.aborted and committed else self.load.records


_ISOLATION = "kafka.isolation.level"
_SMALL_BATCHES = 2.5
HUNDRED = Load(100, 4_000_000)
_ABORTED = Load(100, 400_000, batch_records=25, aborted=True)

CASES = (
    Case("100 B", HUNDRED, 2.6, floor_bar=0.9),
    Case("100 B, aggregated", HUNDRED, aggregate=True),
    Case("100 B, value only", HUNDRED, 2.9, value_only=True),
    Case("1 kB", Load(1000, 500_000), 2.3, floor_bar=0.85),
    Case("10 B", Load(10, 4_000_000), 2.4),
    Case("100 kB", Load(100_000, 8_000), 1.6, floor_bar=0.75),
    Case("100 B lz4", Load(100, 4_000_000, "lz4"), 2.0),
    Case("100 B zstd", Load(100, 4_000_000, "zstd"), 2.0),
    *(
        Case(
            f"batches of {size} record{'s' * (size > 1)} {codec}",
            Load(100, records, codec, batch_records=size),
            bar=_SMALL_BATCHES,
            tuned_bar=_SMALL_BATCHES,
        )
        for size, records in ((1, 300_000), (10, 1_000_000))
        for codec in ("none", "lz4", "zstd")
    ),
    Case("aborted transactions, read_committed", _ABORTED, options={_ISOLATION: "read_committed"}),
    Case("aborted transactions, read_uncommitted", _ABORTED, options={_ISOLATION: "read_uncommitted"}),
    Case("3 headers", Load(100, 2_000_000, batch_records=100, headers=3), options={"includeHeaders": "true"}),
)
