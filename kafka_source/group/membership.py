"""The membership of a query: the common part of both protocols, and their interface.

A query plans and commits through this interface, and does not know which protocol its group has.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError, RetriableError
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings
from kafka_source.group.requests import commit_offsets, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance

log = logging.getLogger(__name__)

_T = TypeVar("_T")

REQUEST_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class Membership(ABC):
    """The membership of all slots of a query. Its methods are synchronous; an event loop on a thread does the work.

    Args:
        config: Kafka client settings.
        settings: The group id, the slots and the timeouts.
    """

    #: The reasons for which the coordinator removes members, for the text of `lost`.
    removed_because: ClassVar[str]

    def __init__(self, config: Settings, settings: GroupSettings) -> None:
        self._settings = settings
        self._client = KafkaClient(config, client_id=settings.client_id)
        # A separate connection, because heartbeats would wait behind a late description.
        self._looks = KafkaClient(config, self._client.loop, settings.client_id)
        # A separate connection too, because a late heartbeat closes its connection, and a commit may take longer.
        self._commits = cached_client(config, "commit")
        self._assignment: GroupAssignment | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group!r}, slots={self._settings.slots})"

    # ---- joining

    @abstractmethod
    def join(self, timeout_s: float) -> GroupAssignment:
        """Join with all slots, and start their heartbeats.

        Raises:
            FencedError: Another process has joined with a slot's instance id.
            InvalidConfigurationError: The group refuses a slot; the error names the setting.
            AssignmentFailed: The group's leader could not assign partitions; the error gives the leader's reason.
            BootstrapError: No broker answers.
            RetriableError: The slots could not join within `timeout_s`.
        """

    @abstractmethod
    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Take and release partitions as the latest assignment says, and rejoin with lost slots; raises as `join`."""

    @property
    def assignment(self) -> GroupAssignment:
        """The last assignment of the slots.

        Raises:
            ApplicationRecoverableError: The slots have not joined yet.
        """
        if self._assignment is None:
            raise ApplicationRecoverableError(f"The slots have not joined group {self._settings.group}.")
        return self._assignment

    @property
    @abstractmethod
    def credentials(self) -> tuple[SlotCredentials, ...]:
        """The slots' current credentials."""

    @abstractmethod
    def ask_for_newer_credentials(self, used: tuple[SlotCredentials, ...]) -> bool:
        """Return whether a refused commit may succeed with the current credentials.

        Raises:
            RetriableError: The coordinator does not answer, so the slots may have a newer epoch.
        """

    @abstractmethod
    def rebalance_needed(self) -> str | None:
        """Return the reason to rejoin before the next micro-batch, or None.

        Raises:
            FencedError: Another process has joined with a slot's instance id. A rejoin would fence that process.
            KafkaGroupError: The group has refused a slot.
        """

    @abstractmethod
    def take_rebalances(self) -> tuple[Rebalance, ...]:
        """Return the rebalances since the last call, the newest 32 at most."""

    def lost(self) -> str | None:
        """Return the reason why the group has removed slots, or None.

        If the coordinator has not answered for a long time, send heartbeats first: a suspended process may have lost
        its session.

        Raises:
            FencedError: Another process has joined with a slot's instance id.
            KafkaGroupError: The group has refused a slot.
        """
        if self._session_may_have_ended():
            self.ask()
        self.check()
        if (reason := self._reason_left()) is not None:
            return reason
        lost = self._lost_slots()
        if not lost:
            return None
        which = f"slot {lost[0]}" if len(lost) == 1 else f"{len(lost)} slots"
        return f"the group has removed {which}, because {self.removed_because}"

    @abstractmethod
    def _session_may_have_ended(self) -> bool: ...

    @abstractmethod
    def _reason_left(self) -> str | None:
        """Return the reason why the slots have left by themselves; None: they have not left."""

    @abstractmethod
    def _lost_slots(self) -> Sequence[int]: ...

    def ask(self) -> bool:
        """Send heartbeats now; return whether all were answered in time.

        If heartbeats fail, send them again: their connection may have ended while this process was suspended.
        """
        deadline = Deadline(REQUEST_SECONDS)
        return self._send_heartbeats(deadline) or self._send_heartbeats(deadline)

    def _send_heartbeats(self, deadline: Deadline) -> bool:
        with contextlib.suppress(RetriableError):
            return self._run(self._beat_all(deadline), REQUEST_SECONDS)
        return False

    @abstractmethod
    async def _beat_all(self, deadline: Deadline) -> bool: ...

    @abstractmethod
    def check(self) -> None:
        """Raise the error if the group has refused or fenced one of the slots.

        Raises:
            FencedError: Another process has joined with the slot's instance id.
            KafkaGroupError: The error for the coordinator's error code; AuthenticationError if a right was revoked.
        """

    # ---- the batch in flight

    @contextlib.contextmanager
    def rebalance_paused(self) -> Iterator[None]:
        """Within this context, no slot rejoins by itself. First wait until no join or leave is running."""
        self._client.run(self._begin_call())
        try:
            yield
        finally:
            if self._client.loop.alive:
                self._client.loop.call_soon(self._end_call)

    @abstractmethod
    async def _begin_call(self) -> None: ...

    @abstractmethod
    def _end_call(self) -> None: ...

    @abstractmethod
    def set_batch_in_flight(self, batch: BatchInFlight) -> None:
        """Record the batch in flight, whose partitions the slots keep, or claim in a rejoin."""

    @abstractmethod
    def record_throughput(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Keep the query's measures for strategies that weigh work; see `BalanceWatch.record_throughput`."""

    # ---- offsets

    def committed_entries(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True, timeout_s: float | None = None
    ) -> dict[TopicPartition, CommitOffset]:
        """Return the committed offsets with their metadata; a partition without an offset is left out.

        If `stable`, wait for open transactions. Without a time limit, `coordinator.timeout.ms` is the limit.
        """
        if timeout_s is None:
            timeout_s = self._settings.coordinator_timeout_ms / 1000
        deadline = Deadline(timeout_s)
        work = fetch_entries(self._client, self._settings.group, partitions, deadline, stable=stable, learns_ids=True)
        return self._run(work, timeout_s)

    def commit(
        self,
        offsets: Mapping[int, Mapping[TopicPartition, int | CommitOffset]],
        timeout_s: float = REQUEST_SECONDS,
        *,
        has_looked: bool = True,
    ) -> None:
        """Commit without a transaction; each slot commits its own partitions.

        Args:
            offsets: By slot number, the next offset to read of each partition.
            timeout_s: The time limit for all commits.
            has_looked: As in `commit_offsets`.

        Raises:
            FencedError: A slot is no longer a member of this generation; its offsets were not committed.
            UnknownTopicError: A topic does not exist; the offsets of the other topics are committed.
            UnknownOutcomeError: The coordinator has not answered in time.
        """
        used, deadline = {number: self._credentials_of(number) for number in offsets}, Deadline(timeout_s)

        async def commit() -> list[BaseException | None]:
            commits = (
                commit_offsets(
                    self._commits, used[number], of_slot, deadline, fail_on_unknown_topic=True, has_looked=has_looked
                )
                for number, of_slot in offsets.items()
            )
            return await asyncio.gather(*commits, return_exceptions=True)

        results = self._commits.run(commit(), timeout_s + CLOSE_SECONDS)
        problems = {number: result for number, result in zip(offsets, results, strict=True) if result is not None}
        for number, problem in problems.items():
            self._note_refused_commit(used[number], number, problem)
        for problem in problems.values():
            raise problem

    @abstractmethod
    def _credentials_of(self, slot: int) -> SlotCredentials: ...

    def _note_refused_commit(self, used: SlotCredentials, slot: int, problem: BaseException) -> None:
        """Handle the error of a commit; do nothing if heartbeats report the same error."""
        return

    # ---- leaving and closing

    @abstractmethod
    def leave(self) -> None:
        """Leave with all slots, even if the user has set instance ids.

        If the coordinator cannot be reached, log a warning; the slots stay until their sessions end.
        """

    @abstractmethod
    def detach(self, kept: Collection[int] | None = None) -> None:
        """Stop the heartbeats without leaving; another process resumes the slots before their sessions end.

        Args:
            kept: The numbers of the slots that stay; all other slots leave. None: all slots stay.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the group if `leave_on_close` is set, and close all connections.

        A second call, and a call after `detach`, are allowed. In a forked child or without threads a call does nothing.
        """

    def _run(self, work: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        # The coroutines have their own deadlines and errors. This longer timeout is only for code without a deadline.
        return self._client.run(work, timeout_s + CLOSE_SECONDS)


def warn_of_overdue(settings: GroupSettings, slots: int, silent: float) -> str:
    """Log that the slots leave after `max.poll.interval.ms` (KIP-62), and return the reason.

    Args:
        settings: The group's settings.
        slots: The number of slots that leave.
        silent: The seconds since the last micro-batch of the query and the last commit of a task.
    """
    log.warning(
        "leave group=%s slots=%d: nobody has asked for a batch, and no task of a batch has committed, for %.0f s, "
        "longer than max.poll.interval.ms=%d. Other members get the partitions. Nothing of the batch in flight is "
        "committed; the slots join again when the next batch is asked for. If batches or the pauses between them "
        "may take this long, raise max.poll.interval.ms.",
        settings.group,
        slots,
        silent,
        settings.rebalance_timeout_ms,
    )
    return f"no batch was requested or committed for {silent:.0f} s (max.poll.interval.ms)"


class BackgroundTasks:
    """Runs functions repeatedly on the event loop, each in a task of its own, while the slots are members.

    Args:
        group: The group id, for the log.
        works: The functions. Each call waits for the next work, and does it once.
    """

    def __init__(self, group: str, works: Sequence[Callable[[], Awaitable[None]]]) -> None:
        self._group, self._works = group, tuple(works)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks, if they do not run."""
        if not self._tasks:
            self._tasks = [asyncio.ensure_future(self._forever(work)) for work in self._works]

    async def stop(self) -> None:
        """Cancel the tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                log.exception("group=%s: a background task failed; retrying in 1 s", self._group)
                await asyncio.sleep(1.0)
