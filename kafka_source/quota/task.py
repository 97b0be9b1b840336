"""How a task is paced: by the driver where it can be asked, else by the task's own share."""

from __future__ import annotations

from dataclasses import replace

from kafka_source.client_config import Settings
from kafka_source.quota.account import Account
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.pacer import Allowances, Own, Pacer
from kafka_source.quota.server import FromDriver
from kafka_source.quota.settings import Ticket
from kafka_source.quota.watch import Watch, is_of_a_file, look_of


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
        allowances = FromDriver(ticket, lambda: _own(ticket, settings, rate))
    return Pacer(ticket.part, allowances)


def _own(ticket: Ticket, settings: Settings, rate: str) -> Own:
    quota = ticket.settings
    account = Account(replace(quota, bounds=ticket.bounds.share(ticket.share)))
    if quota.watch is None or is_of_a_file(quota.watch):
        return Own(account)

    def change(bounds: Bounds) -> None:
        account.change(bounds.share(ticket.share))

    return Own(account, Watch(look_of(quota, settings, rate), change, quota.window, ticket.bounds).close)
