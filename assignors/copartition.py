"""`copartition`: assigns the same partition number of a set of topics to the same member, so that it can join them.

Java has no such strategy. `range` has this effect while the topics have equal partition counts and equal subscribers,
and loses it silently when they differ. `copartition` then raises an error, or co-locates the partitions that it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from assignors.index import known_topics
from assignors.interface import AssignmentError, Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.ordering import sorted_names
from assignors.range import TopicShare, readers_in_order, share_out, shares_of_alike
from assignors.together import check_alike, check_disjoint

_MISMATCHES = ("refuse", "colocate")


class CopartitionAssignor(Assignor):
    """`range` with sets of co-partitioned topics. Topics that are in no set are assigned as `range` does.

    Args:
        groups: Sets of topics; a topic may be in one set only. None: all topics the group subscribes to are one set.
        mismatch: What to do with a set whose topics differ in partition counts or subscribers. "refuse" raises an
            AssignmentError. "colocate" assigns the partition numbers that all topics have together, to members that
            subscribe to all of them; higher numbers are assigned topic by topic.
    """

    name: ClassVar[str] = "copartition"

    def __init__(self, groups: Sequence[Sequence[str]] | None = None, mismatch: str = "refuse") -> None:
        if mismatch not in _MISMATCHES:
            raise ValueError(f"mismatch must be one of {', '.join(_MISMATCHES)}, got {mismatch!r}")
        check_disjoint(groups or ())
        self._groups = groups
        self._mismatch = mismatch

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign each set of co-partitioned topics together, and the other topics as `range` does.

        Raises:
            AssignmentError: A set's topics differ and `mismatch` is "refuse", or no member subscribes to all of them.
        """
        counts = known_topics(cluster, group)
        readers = readers_in_order(group, counts)
        groups = [list(counts)] if self._groups is None else self._groups
        sets = [sorted_names(topic for topic in set(topics) if topic in counts) for topics in groups]
        shares: list[TopicShare] = []
        for topics in filter(None, sets):
            if self._mismatch == "refuse":
                check_alike(topics, counts, readers, "make them equal, or set mismatch='colocate'")
            shares += _share_together(topics, counts, readers)
        together = {topic for topics in sets for topic in topics}
        shares += shares_of_alike({t: n for t, n in counts.items() if t not in together}, readers)
        return share_out(cluster, group, shares)


def _share_together(
    topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, tuple[str, ...]]
) -> list[TopicShare]:
    """Return one share for the partition numbers that all topics have, and one for each topic's higher numbers.

    Only members that subscribe to all the topics take part in the first share.
    """
    common = [m for m in readers[topics[0]] if all(m in readers[topic] for topic in topics)]
    if not common:
        raise AssignmentError(
            f"no member subscribes to all of the co-partitioned topics {', '.join(topics)}; "
            "subscribe at least one member to all of them, or split the set"
        )
    least = min(counts[topic] for topic in topics)
    rest = [topic for topic in topics if counts[topic] > least]
    return [
        TopicShare(topics, least, common),
        *(TopicShare([topic], counts[topic], readers[topic], first=least) for topic in rest),
    ]
