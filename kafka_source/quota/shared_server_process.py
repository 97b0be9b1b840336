"""One hub for all the processes of a Spark driver that ask for the same: each micro-batch of a sink has new ones.

They find it by a file in a directory that is this user's alone. The hub takes its file away when it ends; one that was
killed is not there to answer, and the next process starts another.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.server import new_token
from kafka_source.quota.server_process import ServerProcess, start_server_process
from kafka_source.quota.settings import QuotaSettings

_SECONDS = 15.0


def shared_server_process(quota: QuotaSettings, settings: Settings, rate: str, driver: int, name: str) -> ServerProcess:
    """The hub of this name, which is started if nobody has yet.

    Args:
        quota: Of the query.
        settings: Of the Kafka clients.
        rate: The brokers' name for a bound in bytes, see `look_of`.
        driver: The process with which it ends.
        name: What tells it from the driver's other hubs; it fits into a file's name.

    Raises:
        InvalidConfigurationError: What `quota.watch` names cannot be read, or the directory for temporary files is not
            safe to use.
        OSError: It cannot be used, or this machine has no address towards the brokers.
    """
    with _directory() as directory:
        file = directory / f"hub-{driver}-{name}.json"
        hub = _read(file)
        if hub is None or not _serves(hub):
            hub = start_server_process(quota, settings, rate, new_token(), driver, file)
            bounds = hub.bounds.bytes_per_second, hub.bounds.records_per_second
            file.write_text(json.dumps([hub.endpoint, bounds, hub.token]))
        return hub


@contextmanager
def _directory() -> Iterator[Path]:
    """Where the files are; one process at a time is in it."""
    directory = Path(tempfile.gettempdir()) / f"kafkagroup-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise InvalidConfigurationError(
                f"Others can read or change {directory}, which is to tell tasks where to ask for their quota. Remove "
                "it, or set TMPDIR for the Spark driver."
            )
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(handle)


def _read(file: Path) -> ServerProcess | None:
    try:
        (host, port), bounds, token = json.loads(file.read_text())
        return ServerProcess((str(host), int(port)), Bounds(*bounds), str(token))
    except (OSError, ValueError, TypeError):
        return None


def _serves(hub: ServerProcess) -> bool:
    """Whether it answers; to it that is as if a task had asked, so it stays on for this process's tasks."""
    try:
        with socket.create_connection(hub.endpoint, _SECONDS) as connection:
            connection.sendall(hub.token.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1) == b""
    except OSError:
        return False
