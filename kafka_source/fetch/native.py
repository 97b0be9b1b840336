"""The native engine: the Rust kernel decodes Fetch responses into Arrow while the next request is in flight."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_source.client_config import Settings
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.native_connections import NativeConnections
from kafka_source.fetch.native_reader import NativeReader
from kafka_source.runtime.process_cache import ProcessCache


def engine(settings: Settings) -> NativeEngine:
    """Return the engine of this process for these settings."""
    return _engines.of(settings)


class NativeEngine(NativeConnections):
    """A `FetchEngine` whose tasks use the same connections one after another."""

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """Yield the records of a request, see `FetchEngine.read`."""
        reading = NativeReader(self, request)
        try:
            yield from reading.batches()
        finally:
            reading.give_back()


_engines = ProcessCache(NativeEngine, close=NativeEngine.close)
