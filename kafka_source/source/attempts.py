"""The attempts of a trigger: the reason for another attempt, and the time limit."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import NoLeaderError
from kafka_source.commits.as_members import SlotsRemovedError
from kafka_source.errors import BootstrapError, RefreshRetriableError
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.source.topic_tracker import PartitionsWithoutLeader, TopicTracker

_T = TypeVar("_T")

_TOPICS_SECONDS = 30.0
_PAUSES = RetryPolicy(0.2, 0.2)


class Patience(Enum):
    """The time for which a trigger is tried again."""

    TOPICS = "until every broker knows a change of topics, for 30 s"
    LEADERS = "until a broker leads the partitions, for coordinator.timeout.ms"
    LOGS = "for the time that a leader may be behind (data.loss.patience.ms)"
    MEMBERS = "until the other members of the group have rejoined"


@dataclass(frozen=True, slots=True)
class Again:
    """An attempt that a trigger has to make again.

    Attributes:
        error: The error with which the query ends if no attempt succeeds in this time.
        patience: The time for which the attempt is repeated.
    """

    error: RefreshRetriableError
    patience: Patience

    @classmethod
    def after(cls, error: RefreshRetriableError) -> "Again":
        """Return the next attempt after a lookup of the trigger has failed with this error."""
        if isinstance(error, NoLeaderError):
            return cls(error, Patience.LEADERS)
        return cls(error, Patience.MEMBERS if isinstance(error, SlotsRemovedError) else Patience.TOPICS)


def unfinished(
    *, leaderless: Collection[TopicPartition], unassigned: Collection[TopicPartition], short_logs: bool
) -> Again | None:
    """Return the reason why an AvailableNow run with an empty plan may not end yet; None: it may end.

    Args:
        leaderless: The partitions of the query that have no leader.
        unassigned: Partitions that the group has not assigned yet, because their topics were created again.
        short_logs: Whether logs end before the read positions.
    """
    if leaderless:
        return Again(NoLeaderError(leaderless), Patience.LEADERS)
    if unassigned:
        error = RefreshRetriableError("The group has not yet assigned the topics that were created again.")
        return Again(error, Patience.TOPICS)
    if short_logs:
        error = RefreshRetriableError("Logs end before the read positions; their leaders may be behind.")
        return Again(error, Patience.LOGS)
    return None


def removed(message: str) -> Again:
    """Return the attempt that follows when the group has removed the slots."""
    return Again(SlotsRemovedError(message), Patience.MEMBERS)


def repeat(attempt: Callable[[], _T | Again], leaderless: PartitionsWithoutLeader, topics: TopicTracker) -> _T:
    """Make attempts until an attempt succeeds, or until the time limit of its failure (`Patience`) is over.

    Args:
        attempt: One attempt.
        leaderless: Records the partitions without a leader, and raises an error if a leader is missing for too long.
        topics: Describes the topics again before the next attempt.

    Raises:
        BootstrapError: A lookup has reached no broker within its time limit.
        RefreshRetriableError: The error of the last attempt.
    """
    # The time counts from the first failure, because a trigger may wait long for its group before its lookups. The last
    # attempt begins after the deadline, because a suspended process may have seen only old topics before the deadline.
    deadline: Deadline | None = None
    for pause in _PAUSES.pauses():
        is_last = deadline is not None and deadline.over
        try:
            found = attempt()
        except BootstrapError:
            # The lookup has already waited for the brokers.
            raise
        except RefreshRetriableError as error:
            found = Again.after(error)
        if not isinstance(found, Again):
            return found
        if isinstance(found.error, NoLeaderError):
            leaderless.add(found.error.partitions)
            leaderless.check(found.error.partitions)
        elif found.patience is Patience.MEMBERS:
            deadline = None
        elif found.patience is Patience.TOPICS:
            deadline = deadline or Deadline(_TOPICS_SECONDS)
            if is_last:
                raise found.error
            topics.refresh()
        time.sleep(pause)
    raise AssertionError("the pauses have no end")
