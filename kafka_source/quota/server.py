"""Serve a query's quota to its tasks, in a stream's driver or in a process of its own; write `quota.report`.

The planner of a batch ends before its tasks run, and the driver of a sink is a new process for each micro-batch. So the
first planner or driver starts a process beside the Spark driver. Later planners and drivers with the same quota and
client settings find that process by a file that only this user can read, and have their own accounts there. The process
ends with the Spark driver, or ten minutes after the last request of a task.
"""

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, cast

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client import parse_servers
from kafka_source.quota.account import Account, Report, Reported
from kafka_source.quota.batch_sizing import admit
from kafka_source.quota.bounds import Bounds, QuotaSettings, Ticket, bounds_at_start, watch
from kafka_source.runtime.control_port import Address, ControlClient, ControlPort, listen_towards
from kafka_source.runtime.logs import set_up_logging
from kafka_source.runtime.shared_files import exclusive, name_of, private_directory, replace_file
from kafka_source.runtime.spark_processes import side_process_message, start_side_process, watch_process

_MAX_ACCOUNTS = 256


class QuotaServer:
    """Serves the accounts of reads or writes that have the same quota, at a control port, and watches the bounds.

    Each read has its own account, even if several reads share this server.

    Args:
        ticket: Contains the quota, its bounds and the port's address.
        settings: The query's client settings.
        rate: The name of the broker quota that limits the tasks, see `bounds.current_bounds`.
        listener: The port's socket.
    """

    def __init__(self, ticket: Ticket, settings: Settings, rate: str, listener: socket.socket) -> None:
        self._settings, self._bounds = ticket.settings, ticket.bounds
        # The least recently used account first.
        self._accounts: dict[str, Account] = {}
        self._lock = threading.Lock()
        self.port = ControlPort(listener, ticket.server.secret, self._answer)
        self._stop_watching = watch(ticket.settings, settings, rate, ticket.bounds, self._change)

    def account(self, name: str) -> Account:
        """Return the account of this name; open it if necessary."""
        with self._lock:
            found = self._accounts.pop(name, None) or Account(self._settings, self._bounds)
            self._accounts[name] = found
            # A read does not report its end, so the number of accounts is limited to save memory. The limit is far
            # above the number of a driver's simultaneous reads. A read that loses its account gets a new account.
            if len(self._accounts) > _MAX_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            return found

    def close(self) -> None:
        """End the server; tasks then use their share of the bound."""
        self._stop_watching()
        self.port.close()

    def _answer(self, question: Any) -> Any:
        """Return the grant for a task's report; without a report, an account's bounds, or None for a new account."""
        name, report = question
        is_new = name not in self._accounts
        account = self.account(name)
        if report is None:
            return None if is_new else astuple(account.bounds)
        return astuple(account.grant(Report(*report), time.monotonic()))

    def _change(self, bounds: Bounds) -> None:
        with self._lock:
            self._bounds = bounds
            for account in self._accounts.values():
                account.change(bounds)


def listen(settings: Settings) -> socket.socket:
    """Return a socket at which tasks reach this machine.

    Raises:
        OSError: This machine has no address in the network of the brokers.
    """
    brokers = parse_servers(settings.get("bootstrap.servers", ""))
    return listen_towards((broker.host, broker.port) for broker in brokers)


log = logging.getLogger(__name__)

CONSUMER_RATE = "consumer_byte_rate"


class StreamQuota:
    """The quota of a stream, made once by its driver.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read.
    """

    def __init__(self, quota: QuotaSettings, settings: Settings) -> None:
        bounds = bounds_at_start(quota, settings, CONSUMER_RATE)
        listener = listen(settings)
        self._ticket = Ticket(quota, bounds, Address.of(listener))
        self._server = QuotaServer(self._ticket, settings, CONSUMER_RATE, listener)
        self._quota, self._account = quota, self._server.account(self._ticket.account)
        self._ended = threading.Event()
        if quota.report is not None:
            threading.Thread(target=self._write_report, args=(Path(quota.report),), daemon=True).start()

    def admit(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of the next micro-batch, so that the batch takes one window of the quota.

        So every window has exactly one pause between two micro-batches.
        """
        allowed = self._account.bounds.amounts(self._quota.window)
        return admit(starts, ends, self._account.record_bytes(), allowed)

    def record_bytes(self) -> dict[TopicPartition, float]:
        """Return the fetched (compressed) bytes per offset, for each partition that tasks have read from."""
        return self._account.record_bytes()

    def tasks_done_at(self) -> float | None:
        """Return when a task last reported its end, by `time.monotonic`; None: no task has."""
        return self._account.tasks_done_at

    @property
    def reported(self) -> Reported:
        """The sums of the tasks' reports."""
        return self._account.reported

    def ticket(self, slot: int, share: float) -> Ticket:
        """Return the ticket of a slot's task.

        Args:
            slot: The number of the slot or, without a group, of the input partition.
            share: The task's part of the micro-batch.
        """
        return replace(self._ticket, bounds=self._account.bounds).of(slot, share)

    def figures(self) -> dict[str, Any]:
        """Return the used part of the quota, rates, and delays by slot."""
        return self._account.figures(time.monotonic())

    def close(self) -> None:
        """Stop serving, watching and reporting."""
        self._ended.set()
        self._server.close()

    def _write_report(self, path: Path) -> None:
        try:
            while not self._ended.wait(self._quota.seconds):
                replace_file(path, json.dumps({"clientId": self._quota.client_id, **self.figures()}))
        except OSError as problem:
            log.warning("quota.report disabled: cannot write %s: %s", path, problem)


_IDLE_SECONDS = 600.0


def ticket_of_server_process(quota: QuotaSettings, settings: Settings, rate: str, driver: int, name: str) -> Ticket:
    """Return a ticket for an account at the Spark driver's server process; start the process if there is none.

    Args:
        quota: The query's quota.
        settings: The query's client settings.
        rate: The name of the broker quota that limits the tasks, see `bounds.current_bounds`.
        driver: The id of the Spark driver's process.
        name: The name of the account. All micro-batches of a write share one account; each read has its own.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read, or other users can read the temporary directory.
        OSError: The directory cannot be used, or this machine has no address towards the brokers.
    """
    # The name is derived from the values that the process's accounts share. The settings' repr masks secrets.
    process = f"quota-{driver}-{name_of((quota, settings, rate))}"
    try:
        with exclusive(process):
            with private_directory() as directory:
                file = directory / f"{process}.json"
            server, bounds = _found(file, name) or (None, None)
            # A query that begins looks its bounds up. Later micro-batches have the bounds that the process watches.
            bounds = bounds or bounds_at_start(quota, settings, rate)
            server = server or _start(quota, bounds, settings, rate, driver, file)
            return Ticket(quota, bounds, server, account=name)
    except PermissionError as problem:
        raise InvalidConfigurationError(str(problem)) from None


def _found(file: Path, name: str) -> tuple[Address, Bounds | None] | None:
    """Return the address of the process that a file names, and an account's bounds; None: no process listens.

    The bounds are None if the account is new.
    """
    try:
        server = Address(*json.loads(file.read_text()))
        with closing(ControlClient(server)) as client:
            bounds = client.ask((name, None))
        return server, None if bounds is None else Bounds(*bounds)
    except (OSError, ValueError, TypeError):
        return None


def _start(quota: QuotaSettings, bounds: Bounds, settings: Settings, rate: str, driver: int, file: Path) -> Address:
    with listen(settings) as listener:
        ticket = Ticket(quota, bounds, Address.of(listener))
        # Do not pass these values as command-line arguments, because the settings may contain secrets.
        message = (ticket, settings, rate)
        start_side_process(__name__, [str(listener.fileno()), str(driver), str(file)], message, [listener.fileno()])
    file.write_text(json.dumps(astuple(ticket.server)))
    return ticket.server


def main(listener: str, driver: str, file: str) -> None:
    """Serve until the Spark driver has ended, or tasks have sent no request for a long time."""
    driver_runs = watch_process(int(driver))
    set_up_logging()
    ticket, settings, rate = cast("tuple[Ticket, Settings, str]", side_process_message())
    with closing(QuotaServer(ticket, settings, rate, socket.socket(fileno=int(listener)))) as server:
        while time.monotonic() < server.port.asked_at + _IDLE_SECONDS and driver_runs():
            time.sleep(1)
        Path(file).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
