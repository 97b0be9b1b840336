"""The work in a group's partitions, as its leader looks it up: lags and rates."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from assignors.model import PartitionWork, TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.group.committed_offsets import fetch_committed
from kafka_source.group.pace import Growth
from kafka_source.kafka_client import Deadline, KafkaClient

log = logging.getLogger(__name__)

_LOOKUP_SECONDS = 3.0

EndOffsets = Callable[[KafkaClient, Iterable[TopicPartition], Deadline], Awaitable[Mapping[TopicPartition, int]]]
"""Looks up the ends of partitions; those that are not found in time are left out."""


class WorkLookup:
    """Looks up what there is to read in partitions, once and within 3 s, because a whole group waits for its leader.

    Args:
        client: The cluster's client.
        group: The group id.
        end_offsets: Looks up the ends of the partitions.
        clock: The time in seconds; only differences count.
    """

    def __init__(
        self,
        client: KafkaClient,
        group: str,
        end_offsets: EndOffsets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._group, self._end_offsets, self._clock = client, group, end_offsets, clock
        self._growth = Growth()

    async def look(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionWork]:
        """Return what is known of the work in these partitions; nothing if the lookup fails or takes too long."""
        wanted = sorted(set(partitions))
        deadline = Deadline(_LOOKUP_SECONDS)
        both = asyncio.gather(
            self._end_offsets(self._client, wanted, deadline),
            fetch_committed(self._client, self._group, wanted, deadline, stable=False),
        )
        try:
            ends, committed = await asyncio.wait_for(both, _LOOKUP_SECONDS)
        except (KafkaGroupError, asyncio.TimeoutError) as error:
            log.warning(
                "lead group=%s: its lags are unknown, so the assignment does not weigh them: %s",
                self._group,
                str(error) or f"no answer within {_LOOKUP_SECONDS:g} s",
            )
            return {}
        self._growth = self._growth.after(self._clock(), ends)
        return work_of(ends, committed, self._growth.rates)


def work_of(
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int | None],
    rates: Mapping[TopicPartition, float],
) -> dict[TopicPartition, PartitionWork]:
    """Return the work of each partition whose end is known; without a committed offset its lag is unknown."""
    found = {}
    for tp, end in ends.items():
        offset = committed.get(tp)
        found[tp] = PartitionWork(None if offset is None else max(0, end - offset), rates.get(tp))
    return found
