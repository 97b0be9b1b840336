"""The interface of a strategy, the lookup by its name, and the check that a partition moves in two steps (KIP-429).

A leader checks a cooperative assignment before it sends the assignment, like Java's `ConsumerCoordinator` (KIP-429).
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from importlib.metadata import entry_points
from typing import ClassVar

from assignors.model import Assignment, ClusterMetadata, GroupSubscription, Measures, TopicPartition

ENTRY_POINT_GROUP = "kafkagroup.assignors"
"""The packaging entry point group under which other distributions register their strategies."""

_BUILT_IN = {
    "range": "assignors.range_and_round_robin:RangeAssignor",
    "roundrobin": "assignors.range_and_round_robin:RoundRobinAssignor",
    "sticky": "assignors.sticky:StickyAssignor",
    "cooperative-sticky": "assignors.sticky:CooperativeStickyAssignor",
    "rack-aware": "assignors.rack:RackAwareAssignor",
    "copartition": "assignors.copartition:CopartitionAssignor",
    "redundant": "assignors.redundant:RedundantAssignor",
    "weighted": "assignors.weighted:WeightedAssignor",
    "lag-balanced": "assignors.lag_balanced:LagBalancedAssignor",
}


class RebalanceProtocol(IntEnum):
    """The ways in which members give up partitions in a rebalance (KIP-429); the numbers are Java's."""

    EAGER = 0
    """A member revokes all its partitions before it joins."""
    COOPERATIVE = 1
    """A member keeps its partitions while it joins, and revokes only partitions that the new assignment lacks."""


class AssignmentError(Exception):
    """An assignor cannot assign the group's partitions.

    Attributes:
        reason: The reason, written for the operator of the group; the leader may pass it on to the other members.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Assignor(ABC):
    """A strategy that assigns partitions to a group's members (Java's `ConsumerPartitionAssignor`).

    `assign` runs in the leader and must depend on its arguments alone. The other methods run in every member, and keep
    that member's state, for example its last assignment. So each member needs its own object.
    """

    name: ClassVar[str]
    """The protocol name in JoinGroup; all members of a group must have a name in common."""

    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})
    """The rebalance protocols that the strategy supports."""

    redundant: ClassVar[bool] = False
    """Whether a partition may be assigned to several members; if false, the leader refuses such an assignment."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the user data that this member sends to the leader with its subscription, or None for no data."""
        return None

    @abstractmethod
    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign the partitions of all topics that `group` subscribes to.

        Returns:
            An assignment, possibly empty, for each member of `group`, by member id.

        Raises:
            AssignmentError: The strategy cannot assign the partitions of this group, for the reason in the error.
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 - most keep nothing
        """Keep this member's new assignment and its generation."""

    def rebalance_interval(self) -> float | None:
        """Return the least number of seconds between two rebalances that the leader requests to balance work.

        None, as in most strategies: the leader looks up no lags (`ClusterMetadata.work`) and never requests such a
        rebalance.
        """
        return None

    def on_measures(self, measures: Measures) -> None:  # noqa: B027 - most send none
        """Keep the measures of this member for its next `subscription_user_data`."""

    def should_rebalance(
        self, cluster: ClusterMetadata, group: GroupSubscription, held: Mapping[str, Assignment]
    ) -> str | None:
        """Return the reason for a rebalance of an unchanged group; None: no reason.

        Args:
            cluster: The current metadata, with current lags and rates.
            group: The subscriptions with which the members joined.
            held: The members' current assignments.
        """
        return None

    def replicas(self, assignment: Assignment) -> Mapping[TopicPartition, int]:
        """Return the copy number, from 1, of each partition that this member holds as a standby.

        The member is the only holder or the primary (copy 0) of its other partitions, and commits their offsets. Only a
        `redundant` strategy has standbys.
        """
        return {}


def names() -> tuple[str, ...]:
    """Return the names that `load` accepts, sorted: built-in strategies, and those of installed distributions."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))}))


def load(name_or_spec: str, options: Mapping[str, object] | None = None) -> Assignor:
    """Create a strategy.

    Args:
        name_or_spec: A built-in name, a name under the entry point group "kafkagroup.assignors", or "module:Class".
        options: Keyword arguments for the strategy's constructor.

    Raises:
        ValueError: There is no such strategy, it cannot be imported, or it does not accept these options.
    """
    factory = _find(name_or_spec)
    try:
        assignor = factory(**(options or {}))
    except TypeError as error:
        raise ValueError(
            f"assignor {name_or_spec!r} does not accept the options {dict(options or {})}: {error}"
        ) from error
    if not isinstance(assignor, Assignor):
        raise ValueError(
            f"assignor {name_or_spec!r} created a {type(assignor).__name__}, "
            "which is not a subclass of assignors.Assignor"
        )
    return assignor


def _find(name_or_spec: str) -> Callable[..., object]:
    spec = _BUILT_IN.get(name_or_spec)
    if spec is None:
        for point in entry_points(group=ENTRY_POINT_GROUP, name=name_or_spec):
            spec = point.value
    if spec is None and ":" in name_or_spec:
        spec = name_or_spec
    if spec is None:
        raise ValueError(f"no assignor named {name_or_spec!r}: use one of {', '.join(names())}, or 'module:Class'")
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


def in_transfer(group: GroupSubscription, answer: Mapping[str, Assignment]) -> set[TopicPartition]:
    """Return the partitions that the same rebalance adds to one member and revokes from another member.

    Under the cooperative protocol two members could read a partition in transfer at the same time.
    """
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in group.items():
        owned, given = set(subscription.owned), set(answer[member].partitions)
        added |= given - owned
        revoked |= owned - given
    return added & revoked


def check_handover(name: str, group: GroupSubscription, answer: Mapping[str, Assignment]) -> None:
    """Refuse a cooperative assignment that moves a partition in one step. An eager assignment needs no check.

    As in Java, `cooperative-sticky` is exempt, because it compares generations. A member of an older generation no
    longer owns the partitions that the member claims.

    Raises:
        AssignmentError: A partition moves in one step; the error names the assignor and up to five partitions.
    """
    moving = set() if name == "cooperative-sticky" else in_transfer(group, answer)
    if moving:
        listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(moving)[:5])
        raise AssignmentError(
            f"assignor {name} assigns {len(moving)} partitions to new members before their owners have revoked them "
            f"({listed}): a cooperative assignor must assign these partitions only in the next rebalance"
        )


def hold_back(group: GroupSubscription, answer: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Return the assignments without the partitions in transfer, so that an eager strategy works cooperatively.

    The owners revoke the partitions in transfer and join again, and the next rebalance assigns these partitions.
    """
    moving = in_transfer(group, answer)
    adjusted = {}
    for member, given in answer.items():
        held = moving.difference(group[member].owned)
        adjusted[member] = Assignment([p for p in given.partitions if p not in held], given.user_data)
    return adjusted
