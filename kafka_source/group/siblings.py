"""The other reads of this Spark driver in the same group, and the notification that a read waits in a join.

Spark calls the sources of a query in turn, from one thread, and each source has a Python process of its own. While a
source waits for a rebalance of its group, the group waits for the other sources, which Spark cannot call. So a read
notifies its siblings while it waits, and the siblings rejoin without a call of Spark's. Siblings find each other by
Unix sockets in the user's private directory. A read that waits in a join keeps a connection to each sibling's socket
open. The connection is the notification, so the notification ends even if the process dies.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from kafka_source.runtime.shared_files import name_of, private_directory
from kafka_source.runtime.spark_processes import is_alive

log = logging.getLogger(__name__)

# Seconds between two searches for new siblings.
_LOOK_AGAIN = 1.0
_numbers = itertools.count(1)


class Siblings:
    """The sockets of the reads of one driver and group. All methods except `find` run on one event loop.

    Args:
        directory: The directory of the sockets.
        family: The prefix of the names of all siblings' sockets.
    """

    def __init__(self, directory: Path, family: str) -> None:
        self._directory, self._family = directory, family
        self._own = directory / f"{family}-{os.getpid()}-{next(_numbers)}.sock"
        self._server: asyncio.AbstractServer | None = None
        self._waiting = 0
        self._asked = asyncio.Event()

    @classmethod
    def find(cls, group: str, driver: int) -> "Siblings | None":
        """Return the reads of a group in this process's driver; None without a directory for sockets.

        Reads of a group of this name in another cluster count as siblings too, but rejoin only if their group waits.
        """
        # Containers that share a directory may have equal process ids, so the name of the host is in the identity.
        identity = (socket.gethostname(), group)
        family = f"reads-{driver}-{name_of(identity)}"
        try:
            with private_directory() as directory:
                return cls(directory, family)
        except OSError as error:
            log.warning(
                "group=%s: reads of one group in this driver cannot find each other, and may wait for each other until "
                "kafka.max.poll.interval.ms: %s",
                group,
                error,
            )
            return None

    async def open(self) -> None:
        """Register this read for its siblings."""
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._serve, self._own)

    async def wait_for_join(self) -> None:
        """Wait until a sibling waits in a join; return immediately if a sibling waits already."""
        await self._asked.wait()

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Notify all siblings, even siblings that start later, that this read waits in a join."""
        connections: dict[Path, asyncio.StreamWriter] = {}
        await self._connect(connections)
        looking = asyncio.ensure_future(self._connect_again(connections))
        try:
            yield
        finally:
            looking.cancel()
            for writer in connections.values():
                writer.close()

    def close(self) -> None:
        """Unregister this read."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._own.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting += 1
        self._asked.set()
        try:
            # At the end of the loop Python 3.11 would log a cancelled task as an error of the task's callback.
            with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
                await reader.read(1)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._asked.clear()

    async def _connect_again(self, connections: dict[Path, asyncio.StreamWriter]) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            await self._connect(connections)

    async def _connect(self, connections: dict[Path, asyncio.StreamWriter]) -> None:
        for path in self._others():
            if path not in connections:
                # A sibling that ends or has not begun to listen yet is tried again later.
                with contextlib.suppress(OSError):
                    _, connections[path] = await asyncio.open_unix_connection(path)

    def _others(self) -> list[Path]:
        """Return the sockets of the siblings that run; remove the sockets of dead processes."""
        found = []
        for path in self._directory.glob(f"{self._family}-*.sock"):
            if path == self._own:
                continue
            if is_alive(int(path.stem.split("-")[-2])):
                found.append(path)
            else:
                path.unlink(missing_ok=True)
        return found
