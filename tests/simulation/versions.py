"""Two versions of the package in one world: queries change to a later version and back while others keep theirs.

A later version is this tree with a change in the data that it writes for other versions. The change is active in the
processes of the later version, which `World.later` names. `docs/design/simulator.md` has the rule of each format. A
change that follows the rule does no harm (`FOLLOWS`); each change that breaks the rule has to be found (`BREAKS`).
"""

import contextlib
import functools
import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from assignors.model import TopicPartition
from kafka_source.commits import by_sink, halts, handoff
from kafka_source.group.classic import slot
from kafka_source.model import commits
from kafka_source.model.commits import OffsetNote
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.sink.two_phase import committer, ledger
from kafka_source.transactions.open_transaction import OpenTransaction
from tests.simulation.halts import with_halts
from tests.simulation.scenario import Fault, Scenario, scenario_of
from tests.simulation.world import World

Part = tuple[Any, str, Callable[[Any], Any]]
"""An object, the name of its function that a later version changes, and a function that makes the changed function."""


@dataclass(frozen=True)
class Change:
    """A difference of a later version."""

    name: str
    parts: tuple[Part, ...]
    of_sink: bool = False
    of_halts: bool = False

    def applied(self) -> contextlib.ExitStack:
        """Return a context in which the processes of the later version have the change."""
        with contextlib.ExitStack() as stack:
            for target, name, make in self.parts:
                stack.enter_context(mock.patch.object(target, name, _of_version(target, name, make)))
            return stack.pop_all()

    def scenario_of(self, seed: int) -> Scenario:
        """Return a scenario in which queries change their version."""
        found = with_versions(scenario_of(seed))
        return with_halts(found) if self.of_halts else found


def with_versions(scenario: Scenario) -> Scenario:
    """Let the queries of a scenario change to the later version, all once and then back, or each several times.

    In half of the scenarios nothing else happens, and each query is stopped for the change, so no record may repeat.
    """
    rng = random.Random(f"versions {scenario.seed}")
    changes, queries = rng.choice((1, 2, 5)), scenario.queries + scenario.batches
    least, others = (0.5, ()) if rng.random() < 0.5 else (0.0, scenario.faults)
    faults = [
        Fault(rng.uniform(0.5, scenario.seconds), "change version", (query + 0.5) / queries, rng.uniform(least, 1))
        for query in range(queries)
        for _ in range(changes)
    ]
    return replace(scenario, faults=tuple(sorted((*others, *faults), key=lambda fault: fault.at)))


def _runs_later() -> bool:
    process = World.active.current
    return process is not None and ".".join(process.name.split(".")[:2]) in World.active.later


def _of_version(target: Any, name: str, make: Callable[[Any], Any]) -> Any:
    found = inspect.getattr_static(target, name)
    kind = type(found) if isinstance(found, staticmethod | property) else None
    right: Any = found
    if kind is not None:
        right = found.__func__ if kind is staticmethod else found.fget
    changed = make(right)

    @functools.wraps(right)
    def call(*args: Any, **named: Any) -> Any:
        return (changed if _runs_later() else right)(*args, **named)

    return call if kind is None else kind(call)


def _after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the result of a function."""
    return lambda right: lambda *args, **named: change(right(*args, **named))


def _before(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the first argument of a function."""
    return lambda right: lambda first, *args, **named: right(change(first), *args, **named)


def _as_constant(module: Any, name: str, value: object) -> Callable[[Any], Any]:
    """Give a function another value of a constant of its module."""

    def make(right: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            with mock.patch.object(module, name, value):
                return right(*args, **named)

        return call

    return make


# ---- changes that follow the rules


def _also(text: str, *more: object) -> str:
    return json.dumps([*json.loads(text), *more])


def _with_more(right: Any) -> Any:
    """Add a field to a side group's metadata."""

    def commit(*args: Any, **named: Any) -> Any:
        entry = right(*args, **named)
        return replace(entry, metadata=_also(entry.metadata, "of a later version"))

    return commit


def _records_with_more(found: Any) -> Any:
    return tuple(
        replace(
            one,
            offsets={
                tp: replace(entry, metadata=_also(entry.metadata, "of a later version"))
                for tp, entry in one.offsets.items()
            },
        )
        for one in found
    )


def _newer_subscription(data: bytes) -> bytes:
    return b"\x00\x04" + data[2:] + b"of a later version"


FOLLOWS = (
    Change("a key in the checkpoint", ((StreamOffset, "to_json", _after(lambda value: {**value, "later": [1]})),)),
    Change(
        "a word in the note of an offset",
        ((OffsetNote, "metadata", _after(lambda text: f"{text} kafkagroup:later:1 ".strip())),),
    ),
    Change(
        "a field in a side group",
        ((handoff.Handoff, "published_end_of", _with_more), (handoff, "record_of", _after(_records_with_more))),
    ),
    Change("a field in a subscription", ((slot, "encode_subscription", _after(_newer_subscription)),)),
)


# ---- changes that break them


def _last_offset(value: list[Any]) -> list[Any]:
    return [value[0], value[1] - 1, *value[2:]]


def _behind_last(value: Sequence[Any]) -> list[Any]:
    return [value[0], value[1] + 1, *value[2:]]


def _epoch_first(text: str) -> str:
    query, batch, transactions, ranges = json.loads(text)
    return json.dumps([query, batch, [[one[0], one[2], one[1], *one[3:]] for one in transactions], ranges])


def _with_epoch_first(right: Any) -> Any:
    def transaction(name: str, epoch: int, producer_id: int, *rest: int) -> OpenTransaction:
        found: OpenTransaction = right(name, producer_id, epoch, *rest)
        return found

    return transaction


def _record_start_first(right: Any) -> Any:
    return lambda kind, text: right(kind, _start_first(text) if kind is handoff.Record else text)


def _start_first(text: str) -> str:
    plan, start, *rest = json.loads(text)
    return json.dumps([start, plan, *rest])


def _records_start_first(found: Any) -> Any:
    return tuple(
        replace(
            one,
            offsets={tp: replace(entry, metadata=_start_first(entry.metadata)) for tp, entry in one.offsets.items()},
        )
        for one in found
    )


def _topic_backwards(note: OffsetNote) -> OffsetNote:
    return note if note.topic is None else replace(note, topic=note.topic[::-1])


def _of_kind(entries: Mapping[TopicPartition, tuple[int, str]]) -> dict[TopicPartition, tuple[int, str]]:
    """Read the kind of a halt from another key."""
    return {tp: (boundary, text.replace('"halt"', '"kind"')) for tp, (boundary, text) in entries.items()}


def _with_leader(right: Any) -> Any:
    return lambda self, name, *args, **named: right(self, name.replace("driver", "leader"), *args, **named)


_SET = _as_constant(commits, "_REWOUND", "kafkagroup:set:")

BREAKS = (
    Change(
        "count the last offset into a span of the checkpoint",
        ((Span, "to_json", _after(_last_offset)), (Span, "from_json", _before(_behind_last))),
    ),
    Change("give a planned batch another id", ((by_sink, "plan_id", _after("2".__add__)),), of_sink=True),
    Change("mark a rewind in a note otherwise", ((OffsetNote, "metadata", _SET), (OffsetNote, "parse", _SET))),
    Change(
        "write the epoch first in a decision",
        ((ledger, "decision_text", _after(_epoch_first)), (ledger, "_transaction", _with_epoch_first)),
        of_sink=True,
    ),
    Change(
        "keep decisions in another group",
        ((ledger.Ledger, "_group", _after(lambda name: name.replace("-ledger", "-decisions"))),),
        of_sink=True,
    ),
    Change(
        "write the start first in the record of a decision",
        ((handoff, "record_of", _after(_records_start_first)), (handoff, "_parse", _record_start_first)),
        of_sink=True,
    ),
    Change(
        "call the cluster in the checkpoint otherwise",
        (
            (StreamOffset, "to_json", _after(lambda value: {**value, "cluster": f"kafka:{value['cluster']}"})),
            (
                StreamOffset,
                "from_json",
                _before(lambda value: {**value, "cluster": value["cluster"].removeprefix("kafka:")}),
            ),
        ),
    ),
    Change(
        "spell the topic's id in a note otherwise",
        ((OffsetNote, "metadata", _before(_topic_backwards)), (OffsetNote, "parse", _after(_topic_backwards))),
    ),
    Change(
        "give the driver's transactional id another name",
        ((committer.TwoPhaseCommit, "_initialise", _with_leader),),
        of_sink=True,
    ),
    Change("name the kind of a halt otherwise", ((halts, "halt_of", _before(_of_kind)),), of_halts=True),
)
