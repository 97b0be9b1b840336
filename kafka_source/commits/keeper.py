"""The process that keeps the slots of a batch in their group until the batch is committed or Spark's driver has ended.

A batch without `commit=task` needs no slots while it reads, so the slots leave (`source/batch.py`). With `commit=task`
the planner starts this process with the credentials of the slots. No other process can hold the slots: the planner's
process ends, and the tasks may start hours later. The keeper sends the heartbeats. If another read of the driver waits
in a join, or if the slots were lost, the keeper rejoins and publishes the new credentials to the tasks (see `rights`).
The tasks attach to the slots as in a stream.

The slots leave when the group's committed offsets have reached the end of the batch, or when the Spark driver has
ended. The slots also leave if no task commits for longer than `max.poll.interval.ms`: the batch may have failed, and no
tool can rewind or delete a group with such members. A task that commits after the slots have left asks the keeper to
rejoin. The keeper refuses if other members own the partitions.
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

from assignors import Assignor, TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.rights import Right
from kafka_source.errors import KafkaGroupError
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.model import BatchInFlight, GroupSettings, TopicFilter
from kafka_source.group.siblings import Siblings
from kafka_source.model.credentials import SlotCredentials
from kafka_source.runtime import logs, spark_processes
from kafka_source.runtime.spark_processes import watch_process

log = logging.getLogger(__name__)

# Seconds between two fetches of the group's committed offsets.
_POLL_SECONDS = 0.5
# The time limit of a lookup, which the next look repeats. The driver's end is noticed only between two lookups.
_LOOK_SECONDS = 5.0


def start_keeper(
    config: Settings,
    settings: GroupSettings,
    subscription: TopicFilter,
    slots: Sequence[SlotCredentials],
    right: Right,
    ends: Mapping[TopicPartition, int],
    assignors: Sequence[Assignor],
    driver: int,
) -> None:
    """Start the process that keeps these slots in their group until the batch is committed.

    Args:
        config: Kafka client settings.
        settings: The options with which the slots have joined.
        subscription: The topics to which the slots subscribe.
        slots: The credentials that the tasks have.
        right: The tasks' right to commit this batch.
        ends: The next offset after the batch, by partition.
        assignors: The query's strategies.
        driver: The id of the Spark driver's process.
    """
    if not slots:
        return
    message = (config, settings, subscription, list(slots), right, dict(ends), list(assignors))
    try:
        spark_processes.start_side_process(__name__, [str(driver)], message)
    except OSError as error:
        log.warning(
            "group=%s: no process sends heartbeats for the slots of this batch, so its tasks have to commit within "
            "kafka.session.timeout.ms=%d: %s",
            settings.group,
            settings.session_timeout_ms,
            error,
        )


class SlotKeeper:
    """Keeps the slots of one batch in their group.

    Args:
        membership: A membership that has not joined; it is closed at the end.
        slots: The slots' credentials.
        right: The tasks' right to commit the batch.
        ends: The next offset after the batch, by partition.
        driver_runs: Returns whether the Spark driver still runs.
        patience: After this many seconds without a commit the slots leave, until a task requests them.
    """

    def __init__(
        self,
        membership: ClassicMembership,
        slots: Sequence[SlotCredentials],
        right: Right,
        ends: Mapping[TopicPartition, int],
        driver_runs: Callable[[], bool],
        patience: float,
    ) -> None:
        self._membership = membership
        self._slots = slots
        self._right = replace(right, waits=False)
        self._missing = dict(ends)
        self._driver_runs, self._patience = driver_runs, patience
        self._has_left = False
        self._progress_at = 0.0

    def run(self) -> str:
        """Keep the slots until the batch is over, then leave with all slots; return the reason."""
        with closing(self._membership):
            self._membership.resume(self._slots)
            self._note_progress()
            try:
                while (reason := self._over()) is None:
                    time.sleep(_POLL_SECONDS)
            except KafkaGroupError as error:
                # The group has refused a slot. Or the same DataFrame was planned again, with the same instance ids.
                reason = str(error)
            log.info("keeper %r ends: %s", self._membership, reason)
            self._membership.leave()
        return reason

    def _over(self) -> str | None:
        if not self._driver_runs():
            return "the Spark driver has ended"
        self._membership.check()
        if (reason := self._membership.loss_of_batch) is not None:
            return reason
        try:
            committed = self._membership.committed_entries(self._missing, stable=False, timeout_s=_LOOK_SECONDS)
            missing = {
                tp: end for tp, end in self._missing.items() if tp not in committed or committed[tp].offset < end
            }
            if len(missing) < len(self._missing):
                self._missing = missing
                self._note_progress()
            if missing:
                self._leave_or_rejoin()
        except KafkaGroupError as error:
            log.info("keeper %r: %s", self._membership, error)
            return None
        return None if missing else "the batch is committed"

    def _leave_or_rejoin(self) -> None:
        if self._has_left:
            if self._membership.is_renewal_asked(_LOOK_SECONDS):
                log.info("keeper %r: a task requests its slot", self._membership)
                self._membership.renew_credentials()
                self._has_left = False
                self._note_progress()
        elif self._right.is_renewed and time.monotonic() - self._progress_at > self._patience:
            log.warning(
                "keeper %r: no task of the batch has committed for longer than kafka.max.poll.interval.ms. The slots "
                "leave the group until a task commits.",
                self._membership,
            )
            self._membership.leave()
            self._has_left = True

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()
        self._membership.set_batch_in_flight(BatchInFlight(self._missing, self._right))


def main(driver: str) -> None:
    """Keep the slots that `start_keeper` has sent."""
    driver_runs = watch_process(int(driver))
    logs.set_up_logging()
    config, settings, subscription, slots, right, ends, assignors = cast(
        "tuple[Settings, GroupSettings, TopicFilter, list[SlotCredentials], Right, dict[TopicPartition, int], "
        "list[Assignor]]",
        spark_processes.side_process_message(),
    )
    siblings = Siblings.find(settings.group, int(driver))
    membership = ClassicMembership(config, settings, subscription, assignors, siblings)
    patience = settings.rebalance_timeout_ms / 1000
    SlotKeeper(membership, slots, right, ends, driver_runs, patience).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
