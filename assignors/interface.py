"""What a strategy is, and how one is found by its name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from importlib.metadata import entry_points
from typing import ClassVar

from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartition

ENTRY_POINT_GROUP = "kafkagroup.assignors"
"""The packaging entry point group under which other distributions offer their strategies."""

_BUILT_IN = {
    "range": "assignors.range:RangeAssignor",
    "roundrobin": "assignors.round_robin:RoundRobinAssignor",
    "sticky": "assignors.sticky:StickyAssignor",
    "cooperative-sticky": "assignors.cooperative:CooperativeStickyAssignor",
    "rack-aware": "assignors.rack:RackAwareAssignor",
    "copartition": "assignors.copartition:CopartitionAssignor",
    "redundant": "assignors.redundant:RedundantAssignor",
    "weighted": "assignors.weighted:WeightedAssignor",
}


class RebalanceProtocol(IntEnum):
    """How members hand partitions over (KIP-429); the numbers are Java's."""

    EAGER = 0
    """A member gives up everything before it joins."""
    COOPERATIVE = 1
    """A member keeps what it has, and gives up only what the assignment takes from it."""


class AssignmentError(Exception):
    """An assignor refuses to assign.

    Attributes:
        reason: Why, in words for the person who runs the group; the leader may pass it on to the other members.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Assignor(ABC):
    """A strategy that shares partitions among a group's members (`ConsumerPartitionAssignor` in Java).

    `assign` runs in the leader and depends on its arguments alone. The other methods run in every member; what they
    keep is about that member only (its last assignment, say). One object serves one member.
    """

    name: ClassVar[str]
    """The name in JoinGroup's list of protocols; all members of a group must share one."""

    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})
    """The rebalance protocols it works with."""

    redundant: ClassVar[bool] = False
    """Whether it gives a partition to several members on purpose; else the leader takes that for a mistake."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Bytes for the leader to go with this member's subscription to `topics`; None: none."""
        return None

    @abstractmethod
    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Share the partitions of the topics that `group` subscribes to among its members.

        Returns:
            An assignment for every member of `group`, empty if need be, and for nobody else.

        Raises:
            AssignmentError: The group cannot be served, with the reason.
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 - most keep nothing
        """Hear what this member got, and in which generation."""

    def replicas(self, assignment: Assignment) -> Mapping[TopicPartition, int]:
        """Of the partitions that several members have: the number of this member's copy, from 1.

        A partition that is not named is the member's own, or its copy is the first one (0): the one that counts, whose
        member commits. Only a `redundant` strategy has others.
        """
        return {}


def names() -> tuple[str, ...]:
    """All strategies `load` knows by name: the built-in ones and those of installed distributions, sorted."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))}))


def load(name_or_spec: str, options: Mapping[str, object] | None = None) -> Assignor:
    """Make a strategy.

    Args:
        name_or_spec: A built-in name, a name under the entry point group "kafkagroup.assignors", or "module:Class".
        options: Keyword arguments for its constructor.

    Raises:
        ValueError: There is no such strategy, or it does not take these options.
    """
    factory = _find(name_or_spec)
    try:
        assignor = factory(**(options or {}))
    except TypeError as error:
        raise ValueError(
            f"assignor {name_or_spec!r} does not take the options {dict(options or {})}: {error}"
        ) from error
    if not isinstance(assignor, Assignor):
        raise ValueError(f"assignor {name_or_spec!r} made a {type(assignor).__name__}, which is no assignors.Assignor")
    return assignor


def _find(name_or_spec: str) -> Callable[..., object]:
    spec = _BUILT_IN.get(name_or_spec)
    if spec is None:
        for point in entry_points(group=ENTRY_POINT_GROUP, name=name_or_spec):
            spec = point.value
    if spec is None and ":" in name_or_spec:
        spec = name_or_spec
    if spec is None:
        raise ValueError(f"no assignor named {name_or_spec!r}: known are {', '.join(names())}, or give 'module:Class'")
    module, _, attribute = spec.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"assignor {name_or_spec!r} ({spec}) cannot be loaded: {error}") from error
    if not callable(found):
        raise ValueError(f"assignor {name_or_spec!r} ({spec}) is not a class")
    return found
