"""What a draw is: one query, one event, and the moment at which it comes. A draw is a function of its seed."""

import itertools
import random
from dataclasses import dataclass, fields
from typing import Literal, get_args

Commit = Literal["batch", "task", "sink", "none"]
Start = Literal["earliest", "latest", "json", "timestamp", "committed"]
Strategy = Literal["range", "sticky", "cooperative-sticky", "lag-balanced", "redundant"]
Membership = Literal["static", "dynamic", "assign", "none"]
Kind = Literal["stream", "available-now", "batch", "pinned"]
Event = Literal[
    "restart",
    "kill",
    "rebalance",
    "rewind",
    "partition added",
    "topic deleted",
    "topic created again",
    "beyond the end",
    "retention",
    "checkpoint put back",
]
# Of the batch that is under way when the event comes: nothing is planned; it is planned; its tasks have read; its rows
# are written; it is in Spark's commit log, and the source does not know that yet.
Moment = Literal["idle", "planned", "read", "written", "durable"]
# Of a rewind, from the batch that is under way when it comes.
Target = Literal["before", "inside", "behind"]

ROWS_PER_TRIGGER = 5


@dataclass(frozen=True)
class Draw:
    """A query, and what happens to it.

    Attributes:
        stopped: The event comes while the query is stopped, where it could also come while it runs.
        limited: `maxOffsetsPerTrigger` makes the query read in several batches.
        target: Where a rewind goes.
        with_other: After the event another query of the group, with a new checkpoint, reads while this one is stopped.
    """

    commit: Commit
    fail_on_data_loss: bool
    start: Start
    strategy: Strategy
    membership: Membership
    kind: Kind
    event: Event
    moment: Moment
    stopped: bool
    limited: bool
    target: Target
    with_other: bool

    @property
    def is_member(self) -> bool:
        return self.membership in ("static", "dynamic")

    @property
    def has_other(self) -> bool:
        """Whether another query can read: nothing is lost for it, and no static member keeps its partitions."""
        events = ("restart", "kill", "rewind", "partition added", "topic created again")
        is_alone = self.stopped or self.event in ("restart", "kill")
        return self.with_other and is_alone and self.is_stream and self.membership == "dynamic" and self.event in events

    @property
    def is_stream(self) -> bool:
        return self.kind in ("stream", "available-now")

    def pairs(self) -> set[str]:
        """Every two values that meet in this draw."""
        values = [f"{f.name}={getattr(self, f.name)}" for f in fields(self)]
        return {f"{one} & {other}" for one, other in itertools.combinations(values, 2)}

    def story(self) -> str:
        """What the draw does, in words."""
        fails = "true" if self.fail_on_data_loss else "false"
        many = f" {ROWS_PER_TRIGGER} records a trigger," if self.limited else ""
        when = "while it is stopped" if self.stopped else "while it runs"
        moments = {
            "idle": "before a batch of the new records is planned",
            "planned": "when a batch of the new records is planned",
            "read": "when the tasks of a batch of the new records have read",
            "written": "when a batch of the new records is written",
            "durable": "when a batch of the new records is in Spark's commit log",
        }
        other = ", and another query reads before it starts again" if self.has_other else ""
        where = f" to {self.target} it" if self.event == "rewind" else ""
        return (
            f"{self.kind}: commit={self.commit} failOnDataLoss={fails} start={self.start} strategy={self.strategy} "
            f"membership={self.membership},{many} then {self.event!r}{where} {moments[self.moment]}, {when}{other}"
        )


def draw_of(seed: int, **fixed: object) -> Draw:
    """The draw of a seed; some of its values may be given.

    Most draws are of queries that are not refused; see `model.refused`.
    """
    from tests.pairs.model import refused

    rng = random.Random(seed)
    while True:
        values: dict[str, object] = {
            "commit": rng.choice(get_args(Commit)),
            "fail_on_data_loss": rng.random() < 0.5,
            "start": rng.choice((*get_args(Start), "earliest")),
            "strategy": rng.choice(get_args(Strategy)),
            "membership": rng.choice(get_args(Membership)),
            # Streams are what the product is for.
            "kind": rng.choice(["stream", "stream", "available-now", "available-now", "batch", "pinned"]),
            "event": rng.choice(get_args(Event)),
            "moment": rng.choice(get_args(Moment)),
            "stopped": rng.random() < 0.5,
            "limited": rng.random() < 0.5,
            "with_other": random.Random(f"other {seed}").random() < 0.5,
            "target": random.Random(f"target {seed}").choice(get_args(Target)),
        }
        draw = Draw(**{**values, **fixed})  # type: ignore[arg-type]
        if not refused(draw) or rng.random() < 0.03:
            return draw
