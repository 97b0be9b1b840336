"""Serves the accounts of queries to their tasks, in the stream's driver or in a process of its own."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import astuple
from typing import Any

from kafka_source.client_config import Settings
from kafka_source.kafka_client import parse_servers
from kafka_source.quota.account import Account, Report
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.bounds_watcher import look_first, watch
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.runtime.control_port import Address, ControlPort, listen_towards

_MOST_ACCOUNTS = 256


class QuotaServer:
    """The accounts of reads or writes that have the same quota, with its bounds of now, at a control port.

    Each read has an account of its own, also when many of them share this server.

    Args:
        ticket: Tells the quota, its bounds and the port's address.
        settings: The query's client settings.
        rate: The brokers' name of their bound, see `bounds_watcher.look`.
        listener: The port's socket.
    """

    def __init__(self, ticket: Ticket, settings: Settings, rate: str, listener: socket.socket) -> None:
        self._settings, self._bounds = ticket.settings, ticket.bounds
        # Ordered by last use, the least recently used first.
        self._accounts: dict[str, Account] = {}
        self._lock = threading.Lock()
        self.port = ControlPort(listener, ticket.server.secret, self._grant)
        self._stop_watching = watch(ticket.settings, settings, rate, ticket.bounds, self._change)

    def account(self, name: str) -> Account:
        """Return the account of this name; open it if there is none."""
        with self._lock:
            found = self._accounts.pop(name, None) or Account(self._settings, self._bounds)
            self._accounts[name] = found
            # A read that ended does not say so. The bound is for memory only: it is far above the reads of one driver
            # at a time, and a read that loses its account goes on with a new one.
            if len(self._accounts) > _MOST_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            return found

    def close(self) -> None:
        """End; tasks keep to their share of the bound from here on."""
        self._stop_watching()
        self.port.close()

    def _grant(self, question: Any) -> Any:
        account, report = question
        return astuple(self.account(account).grant(Report(*report), time.monotonic()))

    def _change(self, bounds: Bounds) -> None:
        with self._lock:
            self._bounds = bounds
            for account in self._accounts.values():
                account.change(bounds)


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
