"""What a query that waits in a join says about it: for how long, and for whom."""

from __future__ import annotations

import asyncio
import logging
import time

from kafka_source.errors import KafkaGroupError
from kafka_source.group.description import describe_either
from kafka_source.group.model import GroupSettings
from kafka_source.group.other_members import names_of
from kafka_source.kafka_client import Deadline, KafkaClient

log = logging.getLogger(__name__)

SECONDS = 10.0
"""The time between two lines."""
_DESCRIBE_SECONDS = 5.0


async def log_progress(client: KafkaClient, settings: GroupSettings) -> None:
    """Log a line every 10 s until it is cancelled."""
    started = time.monotonic()
    ours = {settings.instance_id(slot) for slot in range(settings.slots)}
    while True:
        await asyncio.sleep(SECONDS)
        try:
            described = await describe_either(client, settings.group, Deadline(_DESCRIBE_SECONDS))
        except (KafkaGroupError, TimeoutError) as error:
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
