"""What a query's options say of its quota, and what each task takes along of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_source.client_config import Settings
from kafka_source.options import Options
from kafka_source.quota.bounds import Bounds

BROKER = "broker"
"""What is watched where the brokers' own quota is the bound."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """A query's quota.

    Attributes:
        bounds: Of the options.
        per_member: Whether they are of each slot, not of the whole query.
        windows: How many samples a window has.
        seconds: The length of a sample.
        watch: Where bounds are looked up while the query runs: a file's path, a URL, or `broker`; None: nowhere.
        report: The file that the driver keeps its figures in; None: none.
        client_id: Under which the fetchers are known to the brokers, and to a watched document.
    """

    bounds: Bounds
    per_member: bool
    windows: int
    seconds: float
    watch: str | None
    report: str | None
    client_id: str

    @property
    def brokers_refuse(self) -> bool:
        """Whether the brokers keep the same bound, and refuse a fetch that is too much for it."""
        return self.watch == BROKER

    @property
    def window(self) -> float:
        """Seconds of a whole window."""
        return self.windows * self.seconds

    @staticmethod
    def of(options: Options) -> QuotaSettings | None:
        """The quota that these options ask for, None if they ask for none."""
        bounds = Bounds(options["quota.bytes.per.second"], options["quota.records.per.second"])
        watch = options["quota.watch"]
        if not bounds.bounded and watch is None:
            return None
        return QuotaSettings(
            bounds=bounds,
            per_member=options["quota.scope"] == "member",
            windows=options["quota.windows"],
            seconds=options["quota.window.ms"] / 1000,
            watch=watch,
            report=options["quota.report"],
            client_id=Settings(options.kafka).client_id(),
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A task's part of its query's quota.

    Attributes:
        settings: Of the query.
        bounds: Of the query (or member) when the task was planned.
        part: The number of the task's slot, or of its input partition without a group.
        share: Of the bounds, where the task paces itself: by what it has to read.
        endpoint: Where the driver hands out what may be fetched; None: the task paces itself.
        token: With what the task shows the driver whose it is.
    """

    settings: QuotaSettings
    bounds: Bounds
    part: int
    share: float
    endpoint: tuple[str, int] | None = None
    token: str = field(default="", repr=False)
