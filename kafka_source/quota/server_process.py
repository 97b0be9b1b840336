"""A quota's server as a process of its own, where Spark keeps no process of ours: batches, and every kind of sink.

The planner of a batch ends before its tasks run, and a writer has no driver process at all between its commits. So the
first of them starts this process beside the Spark driver. It ends with the driver, or when nobody asks it for long.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_source.client_config import Settings
from kafka_source.kafka_client import parse_servers
from kafka_source.quota.account import Account
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.bounds_watcher import BoundsWatcher, look_first, look_of
from kafka_source.quota.server import QuotaServer, listen_towards
from kafka_source.quota.settings import QuotaSettings
from kafka_source.runtime import log_setup

_IDLE_SECONDS = 600.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """Where the process listens, the bounds that it begins with, and what tasks show it."""

    endpoint: tuple[str, int]
    bounds: Bounds
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Charge:
    """What the process is told over its standard input, for it may hold secrets."""

    quota: QuotaSettings
    bounds: Bounds
    settings: Settings
    rate: str
    token: str
    listener: int
    driver: int
    file: Path | None


def start_server_process(
    quota: QuotaSettings, settings: Settings, rate: str, token: str, driver: int, file: Path | None = None
) -> ServerProcess:
    """Start the process, and do not wait for it: it listens already.

    Args:
        quota: Of the query.
        settings: Of the Kafka clients.
        rate: The brokers' name for a bound in bytes, see `look_of`.
        token: That tasks will show.
        driver: The process with which it ends.
        file: That it takes away when it ends; None: none.

    Raises:
        InvalidConfigurationError: What `quota.watch` names cannot be read.
    """
    bounds = quota.bounds if quota.watch is None else look_first(look_of(quota, settings, rate))
    with listen_towards(parse_servers(settings.get("bootstrap.servers", ""))) as listener:
        host, port, *_ = listener.getsockname()
        endpoint = (str(host), int(port))
        charge = _Charge(quota, bounds, settings, rate, token, listener.fileno(), driver, file)
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_source.quota.server_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(charge))
        process.stdin.close()
    # It may end before the caller does; without somebody who takes its exit status it would stay as a zombie.
    threading.Thread(target=process.wait, name="kafkagroup-quota-server-exit", daemon=True).start()
    return ServerProcess(endpoint, bounds, token)


def main() -> None:
    """Serve until the driver has ended or nobody has asked for long."""
    log_setup.set_up()
    charge: _Charge = pickle.load(sys.stdin.buffer)
    account = Account(replace(charge.quota, bounds=charge.bounds))
    server = QuotaServer(account, socket.socket(fileno=charge.listener), charge.token)
    if charge.quota.watch is not None:
        look = look_of(charge.quota, charge.settings, charge.rate)
        BoundsWatcher(look, lambda bounds: server.call(lambda a: a.change(bounds)), charge.quota.window, charge.bounds)
    while server.idle_seconds < _IDLE_SECONDS and _is_alive(charge.driver):
        time.sleep(_LOOK_SECONDS)
    if charge.file is not None:
        charge.file.unlink(missing_ok=True)
    server.close()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
