"""A query's log of its group: the other members, the members that delay the query's join, each rebalance.

In Spark's own source `kafka.group.id` is a label that queries can share. A query of kafkagroup becomes a member, and
takes partitions from the group's other applications, so the log names these applications before the slots join.
"""

import asyncio
import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.group.model import GroupAssignment, GroupSettings
from kafka_source.group.requests import DescribedMember, GroupDescription, describe
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.driver_figures import Rebalance, RebalanceCause
from kafka_source.model.partition_runs import first_names, format_partitions
from kafka_source.runtime.logs import log_event, once

log = logging.getLogger(__name__)

_MAX_NAMED_MEMBERS = 5


class OtherMembers:
    """Logs a line about the members that are not slots of the query, and a line about other reads of the driver.

    Args:
        client: The cluster's client.
        settings: The settings of the join; members with the prefix `driver` are other reads of this driver.

    Attributes:
        unclear: Whether another read of the driver is in the group, with unknown topics. The coordinator describes no
            topics while the group rebalances.
    """

    def __init__(self, client: KafkaClient, settings: GroupSettings) -> None:
        self._client, self._settings = client, settings
        self.unclear = False

    async def look_up(
        self, topics: Collection[str], own: Collection[str] = (), *, timeout_s: float = math.inf
    ) -> GroupDescription | None:
        """Describe the group, log its members by `log_members`, and return the description; None without an answer.

        No error is raised here, because the join raises the error of a coordinator that refuses or does not answer.
        """
        try:
            deadline = Deadline(min(timeout_s, _DESCRIBE_SECONDS))
            described = await describe(self._client, self._settings.group, deadline)
        except KafkaGroupError as error:
            log.debug("describe group=%s failed: %s", self._settings.group, error)
            return None
        self.log_members(described.members, topics, own)
        return described

    def log_members(
        self, members: Iterable[DescribedMember], topics: Collection[str], own: Collection[str] = ()
    ) -> None:
        """Log the group's other members; once in this process.

        Args:
            members: The members of the group.
            topics: The topics of this query; empty: not known yet.
            own: The known member ids of this query's slots.
        """
        others = [m for m in members if m.member.member_id not in own and not self._is_slot(m)]
        of_driver = [m for m in others if self._is_of_driver(m)]
        self.unclear = bool(of_driver) and not self._log_second_read(of_driver, topics)
        strangers = [m for m in others if m not in of_driver]
        if strangers and once(("other members", self._settings.group)):
            log.log(
                logging.INFO if self._settings.is_asked_for else logging.WARNING,
                "group=%s has other members: %s. This query joins the group, so it shares the partitions with them: "
                "each record is read by one member only, and partitions of other members may move to this query. If "
                "kafka.group.id is meant as a label, as in Spark's own source, set group.membership=false: the query "
                "then reads all partitions and commits no offsets. If the query is meant to share the partitions, set "
                "group.membership=true, which also lowers the level of this line to INFO.",
                self._settings.group,
                names_of(strangers),
            )

    def _log_second_read(self, others: Iterable[DescribedMember], ours: Collection[str]) -> bool:
        """Log the topics that this read shares with other reads of the driver; return whether the topics are known."""
        theirs: set[str] = set()
        for member in others:
            if member.topics is None or not ours:
                return False
            theirs |= member.topics
        group, shared = self._settings.group, theirs & set(ours)
        if shared and once(("second read", group)):
            log.warning(
                "Two reads of group %s in this driver share the partitions of %s: each record is read by one of these "
                "reads. If both reads need all records, set group.membership=false, which makes kafka.group.id a "
                "label, or give each read a group of its own.",
                group,
                first_names(sorted(shared), _MAX_NAMED_MEMBERS),
            )
        elif not shared and once(("reads of different topics", group)):
            # For example the two sides of a join: assignors give partitions of the same number to one member.
            log.info(
                "Two reads of group %s in this driver read different topics, %s here and %s there, so neither takes "
                "records from the other. The group has the committed offsets of both reads.",
                group,
                first_names(sorted(ours), _MAX_NAMED_MEMBERS),
                first_names(sorted(theirs), _MAX_NAMED_MEMBERS),
            )
        return True

    def _is_slot(self, one: DescribedMember) -> bool:
        """Return whether a member is a slot of this query, or of its earlier run with more slots."""
        prefix, instance = self._settings.instance_id_prefix, one.member.instance_id
        return None not in (prefix, instance) and bool(re.fullmatch(rf"{re.escape(str(prefix))}-\d+", str(instance)))

    def _is_of_driver(self, one: DescribedMember) -> bool:
        driver = self._settings.driver
        return driver is not None and (one.member.instance_id or "").startswith(driver)


def names_of(members: Collection[DescribedMember]) -> str:
    """Return the first members with their hosts, and the number of further members, for a log line."""
    named = [f"{m.member.instance_id or m.member.member_id} at {m.host}" for m in members]
    return first_names(named, _MAX_NAMED_MEMBERS) or "none"


PROGRESS_SECONDS = 10.0
"""The seconds between two lines of `log_progress`."""


async def log_progress(client: KafkaClient, settings: GroupSettings) -> None:
    """While a join waits, log a line every 10 s, until the task is cancelled."""
    started = time.monotonic()
    ours = {settings.instance_id(slot) for slot in range(settings.slots)}
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        try:
            described = await describe(client, settings.group, Deadline(_DESCRIBE_SECONDS))
        except KafkaGroupError as error:
            state, others = f"unknown ({error})", []
        else:
            state = described.state
            others = [m for m in described.members if m.member.instance_id is None or m.member.instance_id not in ours]
        log.warning(
            "join group=%s waited_s=%.0f state=%s: the rebalance ends when all members have rejoined, or when their "
            "max.poll.interval.ms is over. Other members: %s",
            settings.group,
            time.monotonic() - started,
            state,
            names_of(others),
        )


# The maximum number of rebalances that wait for the next micro-batch, whose offset shows them.
_MAX_KEPT = 32
_MAX_NAMED = 10
_DESCRIBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a rejoin: the cause, and the text with names for the logs of this process and of the brokers."""

    cause: RebalanceCause
    text: str


@dataclass(slots=True)
class _Ended:
    """A rebalance that has ended, and the requests about it.

    Attributes:
        before: The slots' previous assignment; None: the slots had none.
        now: The slots' new assignment.
        reason: Why the slots rejoined.
        seconds: How long the rebalance took.
        at_ms: When the rebalance ended, in milliseconds since 1970.
        taken: Whether `take` has returned the rebalance.
        asking: The request for the members' names; None: the names are known.
    """

    before: GroupAssignment | None
    now: GroupAssignment
    reason: Reason
    seconds: float
    at_ms: int
    taken: bool = False
    asking: asyncio.Task[None] | None = None


class RebalanceLog:
    """Logs and keeps the rebalances of one query's slots. All methods except `take` run on the membership's event loop.

    The names of all members show which members came and went. The group's leader knows the names. Any other member asks
    the coordinator in the background, and logs the line when the response arrives.
    """

    def __init__(self, client: KafkaClient, group: str) -> None:
        self._client, self._group = client, group
        self._names: frozenset[str] | None = None
        self._kept: deque[Rebalance] = deque(maxlen=_MAX_KEPT)
        self._open: _Ended | None = None
        self._lock = threading.Lock()

    def take(self) -> tuple[Rebalance, ...]:
        """Return the rebalances since the last call, the newest 32 at most. Any thread may call this.

        The members of a rebalance are unknown until the coordinator has answered.
        """
        with self._lock:
            taken = [*self._kept]
            self._kept.clear()
            if self._open is not None and not self._open.taken:
                self._open.taken = True
                taken.append(_record(self._open, None, None))
        return tuple(taken)

    def note(
        self,
        members: frozenset[str] | None,
        before: GroupAssignment | None,
        now: GroupAssignment,
        reason: Reason,
        seconds: float,
    ) -> None:
        """Log a rebalance and keep it.

        Args:
            members: The names of all members, if a slot is the leader; None: the coordinator returns them later.
            before: The slots' previous assignment; None: the slots had none.
            now: The slots' assignment in the new generation.
            reason: Why the slots rejoined.
            seconds: How long the rebalance took.
        """
        # A response that arrives from now on has the members after this rebalance.
        self.finish()
        ended = _Ended(before, now, reason, seconds, round(time.time() * 1000))
        if members is not None:
            self._end(ended, members)
            return
        with self._lock:
            self._open = ended
        ended.asking = asyncio.ensure_future(self._ask(ended))

    def finish(self) -> None:
        """Log the pending rebalance, without the names of the members."""
        if self._open is not None:
            if self._open.asking is not None:
                self._open.asking.cancel()
            self._end(self._open, None)

    async def _ask(self, ended: _Ended) -> None:
        names = await self._member_names()
        if self._open is ended:
            self._end(ended, names)

    def _end(self, ended: _Ended, names: frozenset[str] | None) -> None:
        """Log and keep a rebalance.

        Args:
            ended: The rebalance.
            names: The names of all members; None: unknown.
        """
        known, self._names = self._names, names
        noted = _record(ended, names, known)
        with self._lock:
            self._open = None
            if not ended.taken:
                self._kept.append(noted)
        now = ended.now
        log_event(
            log,
            logging.INFO,
            "rebalance",
            group=self._group,
            generation=noted.generation,
            cause=noted.cause.value,
            reason=noted.reason,
            took_ms=noted.took_ms,
            leading=now.leading,
            assignor=now.assignor,
            members=noted.members,
            came=None if known is None or names is None else _named(noted.came),
            went=None if known is None or names is None else _named(noted.went),
            slots=len(now.slots),
            partitions=sum(len(slot.partitions) for slot in now.slots),
            gained=format_partitions(noted.gained),
            lost=format_partitions(noted.lost),
        )

    async def _member_names(self) -> frozenset[str] | None:
        """Return the names of all members from the coordinator's description of the group; None without an answer."""
        try:
            found = await describe(self._client, self._group, Deadline(_DESCRIBE_SECONDS))
        except KafkaGroupError as error:
            log.debug("rebalance group=%s: its members are unknown: %s", self._group, error)
            return None
        return frozenset(d.member.instance_id or d.member.member_id for d in found.members) or None


def log_assignment(
    group: str, before: GroupAssignment | None, now: GroupAssignment, in_flight: Collection[TopicPartition]
) -> None:
    """Log each slot's assignment, and a warning if other members got partitions of the batch in flight.

    Args:
        group: The group id.
        before: The slots' previous assignment; None: the slots had none.
        now: The slots' assignment in the new generation.
        in_flight: The partitions of the batch in flight.
    """
    had = {tp for slot in before.slots for tp in (*slot.partitions, *slot.held)} if before is not None else set()
    has = {tp for slot in now.slots for tp in (*slot.partitions, *slot.held)}
    if moved := sorted((had - has).intersection(in_flight)):
        log.warning(
            "rebalance group=%s generation=%d: the group's leader has given %s to other members while a "
            "micro-batch of this query reads them. The query finishes the micro-batch, but does not commit these "
            "partitions, so other members may read these records again.",
            group,
            now.generation,
            format_partitions(moved),
        )
    for slot in now.slots:
        log_event(
            log,
            logging.INFO,
            "assigned",
            group=group,
            generation=now.generation,
            slot=slot.credentials.slot,
            member=slot.credentials.instance_id or slot.credentials.member_id,
            partitions=format_partitions(tp for tp in slot.partitions if tp not in slot.replicas),
            standby=format_partitions(slot.replicas),
        )


def _record(ended: _Ended, names: frozenset[str] | None, known: frozenset[str] | None) -> Rebalance:
    return rebalance_of(ended.before, ended.now, ended.reason, ended.seconds, ended.at_ms, members=names, known=known)


def rebalance_of(
    before: GroupAssignment | None,
    now: GroupAssignment,
    reason: Reason,
    seconds: float,
    at_ms: int,
    *,
    members: frozenset[str] | None,
    known: frozenset[str] | None,
) -> Rebalance:
    """Return the record of a rebalance.

    Args:
        before: The slots' previous assignment; None: the slots had none.
        now: The slots' assignment.
        reason: Why the slots rejoined.
        seconds: How long the rebalance took.
        at_ms: When the rebalance ended, in milliseconds since 1970.
        members: The names of all members; None: unknown.
        known: The names of all members after the previous rebalance; None: unknown.
    """
    had = set() if before is None else {tp for slot in before.slots for tp in slot.partitions}
    has = {tp for slot in now.slots for tp in slot.partitions}
    came, went = (members - known, known - members) if members is not None and known is not None else ((), ())
    return Rebalance(
        at_ms=at_ms,
        generation=now.generation,
        cause=reason.cause,
        reason=reason.text,
        took_ms=round(seconds * 1000),
        members=None if members is None else len(members),
        came=tuple(sorted(came)),
        went=tuple(sorted(went)),
        gained=tuple(sorted(has - had)),
        lost=tuple(sorted(had - has)),
    )


def _named(members: Sequence[str]) -> str:
    return first_names(members, _MAX_NAMED, ",") or "none"
