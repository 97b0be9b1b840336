"""The part of a query's options that says how it is a group member: settings, subscription, instance ids."""

from __future__ import annotations

import socket
import uuid
import zlib
from dataclasses import fields

from assignors.model import TopicPartition
from kafka_source.group.model import GroupSettings
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.spark_processes import driver_pid

_MOST_DEFAULT_SLOTS = 8


def subscription_of(options: ReadOptions) -> TopicSelection:
    """Return the topics or partitions that the options select."""
    if options.assign is not None:
        named = options.assign.items()
        return TopicSelection(partitions=tuple(TopicPartition(topic, p) for topic, parts in named for p in parts))
    return TopicSelection(topics=options.subscribe or (), pattern=options.subscribe_pattern)


def group_settings(options: ReadOptions, *, partitions: int, stream: bool) -> GroupSettings:
    """Return the settings with which the query's slots join the group.

    Args:
        options: The options of a query with `kafka.group.id`.
        partitions: The number of partitions that the query selects; it bounds the default number of slots.
        stream: Whether the driver keeps the slots alive. In a batch each slot waits for its task, so the defaults of
            the session and rebalance timeouts are longer.
    """
    if options.group_id is None:
        raise ValueError("the query is in no group")
    given = options.group_instance_id
    driver = _instances_of(driver_pid())
    return GroupSettings(
        group=options.group_id,
        instance_id_prefix=given or driver + (uuid.uuid4().hex[:12] if stream else _of_batch(options)),
        slots=options.group_members or max(1, min(partitions, _MOST_DEFAULT_SLOTS)),
        session_timeout_ms=options.session_timeout_ms or (45_000 if stream else 300_000),
        rebalance_timeout_ms=options.max_poll_interval_ms or (300_000 if stream else 1_800_000),
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        coordinator_timeout_ms=options.coordinator_timeout_ms,
        rebalance_batch_ms=options.rebalance_batch_ms,
        metadata_max_age_ms=options.metadata_max_age_ms,
        client_id=options.settings.client_id("member"),
        rack=options.settings.get("client.rack"),
        leave_on_close=given is None,
        driver=driver,
        is_asked_for=options.group_membership is True,
        # With redundant.emit=all each query has positions of its own, and a batch asks for the offsets only once.
        rewinds=stream and options.redundant_emit != "all",
        without_strategy=options.group_on_converted == "continue",
        refuses_conversion=options.group_on_converted == "refuse",
    )


def _instances_of(driver: int) -> str:
    """Return what the generated instance ids of all reads of a driver begin with, given the id of its process."""
    return f"kafkagroup-{_checksum((socket.gethostname(), driver))}-"


def _of_batch(options: ReadOptions) -> str:
    # An action that reads only a part of its slots (show, limit) leaves the others in the group until their session
    # ends. The next action of the same DataFrame must use the same members: new ones would share the partitions with
    # those that are left.
    return _checksum([repr((field.name, getattr(options, field.name))) for field in fields(options)])


def _checksum(value: object) -> str:
    return f"{zlib.crc32(repr(value).encode()):08x}"
