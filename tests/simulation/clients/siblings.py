"""Reads of one group in one application: when a read waits in a join, it notifies the other reads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kafka_source.group.siblings import Siblings
from tests.simulation.world import Process


class SimulatedSiblings(Siblings):
    """A read among its siblings, in a process of the world; sockets between siblings are not simulated.

    Args:
        process: The process.
        reads: All reads of the application and group.
    """

    def __init__(self, process: Process, reads: list[SimulatedSiblings]) -> None:
        self._process, self._reads = process, reads
        self._asked, self._waits = asyncio.Event(), False

    async def open(self) -> None:
        if self not in self._reads:
            self._reads.append(self)
            self._tell()

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        self._waits = True
        self._tell()
        try:
            yield
        finally:
            self._waits = False
            self._tell()

    def close(self) -> None:
        if self in self._reads:
            self._reads.remove(self)
            self._tell()

    def _tell(self) -> None:
        family = [one for one in self._reads if one._process.alive]
        for one in family:
            if any(other._waits for other in family if other is not one):
                one._asked.set()
            else:
                one._asked.clear()
