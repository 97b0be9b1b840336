"""A task's slots while the task reads: heartbeats verify the slots while the first records are fetched."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from functools import cache
from typing import Protocol

from kafka_source.commits.rights import Renewal, SlotSession
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError, RetriableError
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions

log = logging.getLogger(__name__)

Sessions = Callable[[], Sequence[SlotSession]]
"""Waits for the sessions of a task's slots."""

# Seconds in which a healthy coordinator answers a heartbeat, even if the task has to look the coordinator up first.
_ATTACH_SECONDS = 10.0


class CommitRead(Protocol):
    """Commits the records that were read; raises UnknownTopicError if the topics may differ from the plan's topics."""

    def __call__(self, read: StreamOffset, *, has_looked: bool) -> None:
        """Commit; `has_looked`: whether the topics were compared with the plan's topics."""


class AttachedTask:
    """A task while it reads; this class commits nothing.

    Args:
        sessions: Waits for the sessions of the task's slots.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def check(self) -> None:
        """Check that the task holds its slots; the first call waits for their coordinator.

        Raises:
            FencedError: The task has lost a slot, and must yield no more records.
            RetriableError: The coordinator does not answer, and the task commits.
        """
        for session in self._sessions():
            session.check()

    def commit(self, existing: Callable[[StreamOffset, CommitRead], None]) -> None:
        """If tasks commit, commit the ranges that the task has read to their ends.

        Args:
            existing: Calls the given commit for the ranges of topics that still exist.
        """


@contextmanager
def attached(
    options: ReadOptions,
    slots: Sequence[SlotCredentials],
    *,
    is_output: bool = False,
    commits: bool = False,
    renewal: Renewal | None = None,
) -> Iterator[Sessions]:
    """Begin to attach slots, and yield a function that waits for their sessions.

    Args:
        options: The query's options.
        slots: The credentials of the slots.
        is_output: See `CommitPolicy`.
        commits: Whether the task commits as these slots.
        renewal: How the task gets new credentials after it has lost slots.

    Raises:
        FencedError: The task has lost a slot.
        RetriableError: The coordinator has not answered in time, and the task commits.
    """
    if not slots or options.group_protocol == "consumer":
        # Only the driver sends heartbeats of members of the consumer protocol, because a response has the partitions to
        # release. So the driver learns that a slot is lost, and does not commit the batch.
        yield tuple
        return
    # A task that only reads needs no coordinator.
    seconds = options.coordinator_timeout_ms / 1000 if commits else _ATTACH_SECONDS
    attaching = SlotSession.attach_all(options.settings, slots, seconds, renewal)

    @cache
    def sessions() -> Sequence[SlotSession]:
        try:
            outcomes = attaching.result(seconds + 1)
        except futures.TimeoutError:
            outcomes = [RetriableError(f"The heartbeats of {len(slots)} slots have taken longer than {seconds:g} s.")]
        for problem in outcomes:
            if isinstance(problem, KafkaGroupError):
                check_dispensable(problem, options, is_output=is_output, commits=commits)
        return [outcome for outcome in outcomes if isinstance(outcome, SlotSession)]

    try:
        yield sessions
    finally:
        # A task that ends before the coordinator answers needs no session.
        attaching.cancel()


def check_dispensable(problem: KafkaGroupError, options: ReadOptions, *, is_output: bool, commits: bool) -> None:
    """Raise the error of a slot that was not attached, unless the task can read without the slot."""
    if commits or not isinstance(problem, RetriableError | FencedError):
        raise problem
    if isinstance(problem, RetriableError):
        # The task only reads. If its driver was replaced, the coordinator refuses the driver's commit.
        log.warning("reading without a check of the membership, because the coordinator does not answer: %s", problem)
    elif problem.code == ErrorCode.ILLEGAL_GENERATION:
        # The driver's slots have rejoined since the batch was planned, because another read of the driver waited for
        # them. The driver knows which offsets of the batch it may commit.
        log.info("the group has a new generation since the batch was planned; the batch is read to its end")
    elif options.group_on_lost == "stop" or (problem.code == ErrorCode.FENCED_INSTANCE_ID and not is_output):
        # With `is_output` the slot may have rejoined after a loss. If another process has the slot, the sink's commit
        # fails.
        raise problem
    else:
        # The micro-batch is in Spark's offset log, so Spark would run it again after a restart. The task reads the
        # micro-batch to its end, and the driver does not commit it.
        log.warning(
            "%s The task still reads this micro-batch to its end, but the micro-batch is not committed.", problem
        )
