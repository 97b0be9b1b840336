"""Serves a query's account to its tasks, in the stream's driver or in a process of its own."""

from __future__ import annotations

import socket
import time
from dataclasses import astuple
from typing import Any

from kafka_source.client_config import Settings
from kafka_source.kafka_client import parse_servers
from kafka_source.quota.account import Account, Report
from kafka_source.quota.bounds_watcher import look_first, watch
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.runtime.control_port import Address, ControlPort, listen_towards


class QuotaServer:
    """The account of a query with its bounds of now, at a control port.

    Args:
        ticket: Tells the quota, its bounds and the port's address.
        settings: The query's client settings.
        rate: The brokers' name of their bound, see `bounds_watcher.look`.
        listener: The port's socket.
    """

    def __init__(self, ticket: Ticket, settings: Settings, rate: str, listener: socket.socket) -> None:
        self.account = Account(ticket.settings, ticket.bounds)
        self.port = ControlPort(listener, ticket.server.secret, self._grant)
        self._stop_watching = watch(ticket.settings, settings, rate, ticket.bounds, self.account.change)

    def close(self) -> None:
        """End; tasks keep to their share of the bound from here on."""
        self._stop_watching()
        self.port.close()

    def _grant(self, report: Any) -> Any:
        return astuple(self.account.grant(Report(*report), time.monotonic()))


def listen(quota: QuotaSettings, settings: Settings, rate: str) -> tuple[socket.socket, Ticket]:
    """Return a socket at which tasks will reach this machine, and a ticket with the bounds of now.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read.
        OSError: This machine has no address towards the brokers.
    """
    bounds = look_first(quota, settings, rate)
    brokers = parse_servers(settings.get("bootstrap.servers", ""))
    listener = listen_towards((broker.host, broker.port) for broker in brokers)
    return listener, Ticket(quota, bounds, Address.of(listener))
