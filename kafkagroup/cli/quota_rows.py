"""What `kafkagroup quota` shows: the use of a query's quota by slot, and the brokers' client quotas. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_source.cluster.client_quotas import CLIENT, USER, ClientQuota
from kafkagroup.admin.rows import Rows
from kafkagroup.cli.listing import Listing


@dataclass(frozen=True, slots=True)
class SlotUse:
    """What one slot of a query has read or written.

    Attributes:
        slot: The slot's number.
        bytes: Bytes on the network.
        records: Records.
        throttle_seconds: For how long the query's own quota has delayed it.
        broker_throttle_seconds: For how long the brokers have delayed it.
    """

    slot: str
    bytes: int
    records: int
    throttle_seconds: float
    broker_throttle_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerQuota:
    """A client quota that the brokers keep (KIP-546).

    Attributes:
        user: The user; (default): all users without one of their own; None: any.
        client_id: The client id, in the same way.
        quota: The name of the quota.
        value: Bytes a second, or percent of one thread's time.
    """

    user: str | None
    client_id: str | None
    quota: str
    value: float


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The change of a client quota of the brokers.

    Attributes:
        user: The user; None: any.
        client_id: The client id.
        quota: The name of the quota.
        value: The new value, in bytes a second or percent of one thread's time; None: the quota is removed.
        before: The value before the change; None: there is none.
    """

    user: str | None
    client_id: str
    quota: str
    value: float | None
    before: float | None


def usage(figures: Mapping[str, Any]) -> Listing:
    """Return the figures of the file of `quota.report` as a table."""
    rows = Rows(
        SlotUse,
        (
            SlotUse(str(number), slot["bytes"], slot["records"], slot["delayMs"] / 1000, slot["throttleMs"] / 1000)
            for number, slot in figures["slots"].items()
        ),
    )
    bounds = f"{_rate(figures['bytesPerSecond'])} bytes/s, {_rate(figures['recordsPerSecond'])} records/s"
    now = f"{figures['observedBytesPerSecond']:,} bytes/s, {figures['observedRecordsPerSecond']:,} records/s"
    title = f"client {figures['clientId']}: {figures['usedPercent']} % used of {bounds}; now {now}"
    return Listing("slots", rows, title)


def broker_quotas(quotas: Iterable[ClientQuota]) -> Listing:
    """Return the brokers' client quotas as a table."""
    rows = Rows(
        BrokerQuota,
        (
            BrokerQuota(_name(each.entity, USER), _name(each.entity, CLIENT), name, value)
            for each in sorted(quotas, key=lambda each: str(sorted(each.entity.items(), key=str)))
            for name, value in sorted(each.values.items())
        ),
    )
    return Listing("quotas", rows, "client quotas of the brokers", empty="The brokers keep no client quotas.")


def quota_changes(quotas: Iterable[ClientQuota], client_id: str, wanted: Mapping[str, float | None]) -> Listing:
    """Return the change of a client id's quotas as a table.

    Args:
        quotas: All quotas that the brokers keep before the change.
        client_id: The client id.
        wanted: The new values by the quota's name; None removes it.
    """
    before = next((each.values for each in quotas if each.entity == {CLIENT: client_id}), {})
    changes = (QuotaChange(None, client_id, name, value, before.get(name)) for name, value in wanted.items())
    return Listing("quotas", Rows(QuotaChange, changes), "client quotas of the brokers", frozenset({"user"}))


def _rate(value: float | None) -> str:
    return "any" if value is None else f"{value:,.0f}"


def _name(entity: Mapping[str, str | None], component: str) -> str | None:
    return (entity[component] or "(default)") if component in entity else None
