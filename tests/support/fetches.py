"""What a test asks an engine for: one column of ranges."""

from kafka_source.fetch.engine import FetchRequest
from kafka_source.model.stream_offset import Range
from kafka_source.schema import Column


def fetch_request(
    *ranges: Range, column: str = "offset", batch_rows: int = 1000, timeout_ms: int = 15_000
) -> FetchRequest:
    """Return the request for all records of the ranges, in batches of so many rows."""
    columns = (Column(column),)
    return FetchRequest(ranges, columns, batch_rows, 1 << 20, timeout_ms, read_committed=False, fail_on_data_loss=True)
