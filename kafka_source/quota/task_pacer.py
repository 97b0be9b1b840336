"""How a task is paced: by the driver where it can be asked, else by the task's own share."""

from __future__ import annotations

from dataclasses import replace

from kafka_source.client_config import Settings
from kafka_source.quota.account import Account
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.bounds_watcher import BoundsWatcher, is_of_a_file, look_of
from kafka_source.quota.pacer import Allowances, LocalAllowances, Pacer
from kafka_source.quota.server import RemoteAllowances
from kafka_source.quota.settings import Ticket


def pacer_of(ticket: Ticket | None, settings: Settings, rate: str) -> Pacer:
    """The pacer of a task, a context manager; without a ticket nothing is held back.

    Args:
        ticket: The task's part of its query's quota.
        settings: Of the Kafka clients.
        rate: The brokers' name for a bound in bytes, where these are watched.
    """
    if ticket is None:
        return Pacer()
    allowances: Allowances
    if ticket.endpoint is None:
        allowances = _own(ticket, settings, rate)
    else:
        allowances = RemoteAllowances(ticket, lambda: _own(ticket, settings, rate))
    return Pacer(ticket.part, allowances)


def _own(ticket: Ticket, settings: Settings, rate: str) -> LocalAllowances:
    quota = ticket.settings
    account = Account(replace(quota, bounds=ticket.bounds.share(ticket.share)))
    if quota.watch is None or is_of_a_file(quota.watch):
        return LocalAllowances(account)

    def change(bounds: Bounds) -> None:
        account.change(bounds.share(ticket.share))

    return LocalAllowances(
        account, BoundsWatcher(look_of(quota, settings, rate), change, quota.window, ticket.bounds).close
    )
