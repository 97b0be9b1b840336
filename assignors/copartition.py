"""`copartition`: the same partition numbers of a set of topics go to the same member, so that it can join them.

Java has no such strategy; `range` does it as long as the topics have equal counts and equal subscribers, and quietly
stops when they have not. This one says so, or keeps together what can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from assignors.index import known_topics
from assignors.interface import AssignmentError, Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.ordering import sorted_names
from assignors.range import TopicShare, readers_in_order, share_out, shares_of_alike

_MISMATCHES = ("refuse", "colocate")


class CopartitionAssignor(Assignor):
    """`range`, with sets of topics that stay together. Topics outside of all sets are shared as `range` does.

    Args:
        groups: Sets of topics; no topic in two. None: all topics the group subscribes to are one set.
        mismatch: What to do with a set whose topics differ in partition counts or subscribers: "refuse" (an
            AssignmentError) or "colocate": the numbers that all topics have go, together, to members that subscribe
            to all of them; the others are shared topic by topic.
    """

    name: ClassVar[str] = "copartition"

    def __init__(self, groups: Sequence[Sequence[str]] | None = None, mismatch: str = "refuse") -> None:
        if mismatch not in _MISMATCHES:
            raise ValueError(f"mismatch must be one of {', '.join(_MISMATCHES)}, and not {mismatch!r}")
        named = [topic for group in groups or () for topic in set(group)]
        if len(named) != len(set(named)):
            twice = sorted({topic for topic in named if named.count(topic) > 1})
            raise ValueError(f"topics are in two groups: {', '.join(twice)}; put what belongs together into one group")
        self._groups = groups
        self._mismatch = mismatch

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`.

        Raises:
            AssignmentError: A set's topics differ and `mismatch` is "refuse", or no member subscribes to all of them.
        """
        counts = known_topics(cluster, group)
        readers = readers_in_order(group, counts)
        groups = [list(counts)] if self._groups is None else self._groups
        sets = [sorted_names(topic for topic in set(topics) if topic in counts) for topics in groups]
        shares: list[TopicShare] = []
        for topics in filter(None, sets):
            self._check(topics, counts, readers)
            shares += _share_together(topics, counts, readers)
        together = {topic for topics in sets for topic in topics}
        shares += shares_of_alike({t: n for t, n in counts.items() if t not in together}, readers)
        return share_out(cluster, group, shares)

    def _check(self, topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, tuple[str, ...]]) -> None:
        if self._mismatch == "colocate":
            return
        advice = "make them equal, or set mismatch='colocate'"
        if len({counts[topic] for topic in topics}) > 1:
            listed = ", ".join(f"{topic} has {counts[topic]}" for topic in topics)
            raise AssignmentError(f"topics to be co-partitioned have different partition counts: {listed}; {advice}")
        for topic in topics[1:]:
            odd = sorted(set(readers[topic]) ^ set(readers[topics[0]]))
            if odd:
                raise AssignmentError(
                    f"topics to be co-partitioned have different subscribers: {', '.join(odd[:5])} "
                    f"subscribes to only one of {topics[0]} and {topic}; {advice}"
                )


def _share_together(
    topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, tuple[str, ...]]
) -> list[TopicShare]:
    """A share of the numbers that all topics have, for members that read all of them, and one for each topic's rest."""
    common = [m for m in readers[topics[0]] if all(m in readers[topic] for topic in topics)]
    if not common:
        raise AssignmentError(f"no member subscribes to all of the co-partitioned topics {', '.join(topics)}")
    least = min(counts[topic] for topic in topics)
    rest = [topic for topic in topics if counts[topic] > least]
    return [
        TopicShare(topics, least, common),
        *(TopicShare([topic], counts[topic], readers[topic], first=least) for topic in rest),
    ]
