"""The standalone server of a quota, for batches and sinks, which have no long-lived driver process.

The planner of a batch ends before its tasks run, and the driver of a sink is a new process for each micro-batch. So the
first of them starts this process beside the Spark driver; later ones with the same quota and client settings find it by
a file in a directory that only this user can read, and have accounts of their own there. It ends with the Spark driver,
or when no task has asked for ten minutes.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path
from typing import cast

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.server import QuotaServer, listen
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.runtime import log_setup, side_process
from kafka_source.runtime.control_port import Address, ControlClient
from kafka_source.runtime.driver_pid import is_alive
from kafka_source.runtime.private_directory import name_of, private_directory

_IDLE_SECONDS = 600.0


def ticket_of_server_process(quota: QuotaSettings, settings: Settings, rate: str, driver: int, name: str) -> Ticket:
    """Return a ticket for an account at the Spark driver's server process; start the process if there is none.

    Args:
        quota: The query's quota.
        settings: The query's client settings.
        rate: The brokers' name of their bound, see `bounds_watcher.look`.
        driver: The id of the Spark driver's process.
        name: The name of the account: that of a write, which all its micro-batches share, or a new one for a read.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read, or others can read the directory for temporary files.
        OSError: The directory cannot be used, or this machine has no address towards the brokers.
    """
    try:
        with private_directory() as directory:
            # All that a process does in one way for its accounts; the settings' repr masks secrets.
            file = directory / f"quota-{driver}-{name_of((quota, settings, rate))}.json"
            return replace(_read(file, quota) or _start(quota, settings, rate, driver, file), account=name)
    except PermissionError as problem:
        raise InvalidConfigurationError(str(problem)) from None


def _read(file: Path, quota: QuotaSettings) -> Ticket | None:
    """A ticket for the process that the file names, if it listens: it stays on, as if a task had asked."""
    try:
        server, bounds = json.loads(file.read_text())
        ticket = Ticket(quota, Bounds(*bounds), Address(*server))
        with closing(ControlClient(ticket.server)) as client:
            client.connect()
        return ticket
    except (OSError, ValueError, TypeError):
        return None


def _start(quota: QuotaSettings, settings: Settings, rate: str, driver: int, file: Path) -> Ticket:
    listener, ticket = listen(quota, settings, rate)
    with listener:
        # The settings may contain secrets, so they are no arguments.
        message = (ticket, settings, rate)
        side_process.start(__name__, [str(listener.fileno()), str(driver), str(file)], message, [listener.fileno()])
    file.write_text(json.dumps([astuple(ticket.server), astuple(ticket.bounds)]))
    return ticket


def main(listener: str, driver: str, file: str) -> None:
    """Serve until the Spark driver has ended, or no task has asked for long."""
    log_setup.set_up()
    ticket, settings, rate = cast("tuple[Ticket, Settings, str]", side_process.received())
    with closing(QuotaServer(ticket, settings, rate, socket.socket(fileno=int(listener)))) as server:
        while time.monotonic() < server.port.asked_at + _IDLE_SECONDS and is_alive(int(driver)):
            time.sleep(1)
        Path(file).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
