"""Say with whom a query shares its group, before its slots join: other applications, or other reads of this driver.

In Spark's own source `kafka.group.id` is a label. A program that uses the group id of a running application there does
it no harm. Here it becomes a member, and takes partitions from that application.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable

from kafka_source.errors import KafkaGroupError
from kafka_source.group.description import DescribedMember, GroupDescription, describe_either
from kafka_source.group.model import GroupSettings
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.partition_runs import first_names
from kafka_source.runtime.logs import once

log = logging.getLogger(__name__)

_DESCRIBE_SECONDS = 5.0
_MOST_NAMED = 5


class OtherMembers:
    """Logs one line about the members that are not slots of the query, and one about other reads of its driver.

    Args:
        client: The cluster's client.
        settings: How the query joins; `driver` tells which members are other reads of this driver.

    Attributes:
        unclear: Whether another read of the driver is in the group and it was not known yet what the two read: the
            coordinator tells no member's topics while the group rebalances.
    """

    def __init__(self, client: KafkaClient, settings: GroupSettings) -> None:
        self._client, self._settings = client, settings
        self.unclear = False

    async def look(self, topics: Collection[str], own: Collection[str] = ()) -> GroupDescription | None:
        """Ask the coordinator who is in the group, log it as `tell` does, and return it; None if it is not known.

        A coordinator that refuses or does not answer is no error here: the join reports it.
        """
        try:
            described = await describe_either(self._client, self._settings.group, Deadline(_DESCRIBE_SECONDS))
        except (KafkaGroupError, TimeoutError) as error:
            log.debug("describe group=%s failed: %s", self._settings.group, error)
            return None
        self.tell(described.members, topics, own)
        return described

    def tell(self, members: Iterable[DescribedMember], topics: Collection[str], own: Collection[str] = ()) -> None:
        """Log who is in the group besides this query; once in this process.

        Args:
            members: The members of the group.
            topics: The topics of this query; empty: not known yet.
            own: The member ids of this query's slots, as far as they are known.
        """
        others = [m for m in members if m.member.member_id not in own and not self._is_slot(m)]
        of_driver = [m for m in others if self._is_of_driver(m)]
        self.unclear = bool(of_driver) and not self._tell_of_second_read(of_driver, topics)
        strangers = [m for m in others if m not in of_driver]
        if strangers and once(("other members", self._settings.group)):
            log.log(
                logging.INFO if self._settings.is_asked_for else logging.WARNING,
                "group=%s has other members: %s. This query joins the group, so it shares the partitions with them: "
                "each record is read by one member only, and partitions that they read now may move to this query. If "
                "kafka.group.id is meant as a label, as in Spark's own source, set group.membership=false: the query "
                "then reads all partitions and commits no offsets. If the query is meant to share them, set "
                "group.membership=true, and this line is logged at INFO.",
                self._settings.group,
                names_of(strangers),
            )

    def _tell_of_second_read(self, others: Iterable[DescribedMember], ours: Collection[str]) -> bool:
        """Log what this read shares with other reads of the driver; return whether that is known."""
        theirs: set[str] = set()
        for member in others:
            if member.topics is None or not ours:
                return False
            theirs |= member.topics
        group, shared = self._settings.group, theirs & set(ours)
        if shared and once(("second read", group)):
            log.warning(
                "Two reads of group %s in this driver share the partitions of %s: each record is read by one of them. "
                "If both need all records, set group.membership=false, which makes kafka.group.id a label, or give "
                "each read a group of its own.",
                group,
                first_names(sorted(shared), _MOST_NAMED),
            )
        elif not shared and once(("reads of different topics", group)):
            # The two sides of a join, for which assignors give partitions of the same number to one member.
            log.info(
                "Two reads of group %s in this driver read different topics, %s here and %s there, so neither takes "
                "records from the other. The group has the committed offsets of both.",
                group,
                first_names(sorted(ours), _MOST_NAMED),
                first_names(sorted(theirs), _MOST_NAMED),
            )
        return True

    def _is_slot(self, one: DescribedMember) -> bool:
        """Return whether a member is a slot of this query, or of an earlier run of it with more slots."""
        prefix, instance = self._settings.instance_id_prefix, one.member.instance_id
        return None not in (prefix, instance) and bool(re.fullmatch(rf"{re.escape(str(prefix))}-\d+", str(instance)))

    def _is_of_driver(self, one: DescribedMember) -> bool:
        driver = self._settings.driver
        return driver is not None and (one.member.instance_id or "").startswith(driver)


def names_of(members: Collection[DescribedMember]) -> str:
    """Return the first members with their hosts, and how many more there are, for a log line."""
    named = [f"{m.member.instance_id or m.member.member_id} at {m.host}" for m in members]
    return first_names(named, _MOST_NAMED) or "none"
