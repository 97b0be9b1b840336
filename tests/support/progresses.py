"""Progress events of a query as Spark makes them, from offsets as our driver makes them."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from assignors.model import TopicPartition
from kafka_source.model import driver_figures
from kafka_source.model.driver_figures import DriverFigures
from kafka_source.model.stream_offset import Span, StreamOffset

QUERY_ID, RUN_ID = uuid.UUID(int=1), uuid.UUID(int=2)
START = 1_700_000_000.0
"""When batch 0 began, in seconds since 1970."""


def end_of(
    spans: Mapping[TopicPartition, Span], figures: DriverFigures | None = None, quota: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The end offset of a micro-batch as the stream reader returns it."""
    end: dict[str, Any] = StreamOffset(spans, generation=7, slots=2).to_json()
    if figures is not None:
        end[driver_figures.KEY] = figures.to_json()
    return end if quota is None else {**end, "quota": quota}


def progress_of(
    batch: int,
    end: Mapping[str, Any],
    latest: Mapping[TopicPartition, int] | None,
    *,
    start: Mapping[str, Any] | None = None,
    name: str | None = "orders",
    rows: int = 10,
) -> StreamingQueryProgress:
    """The progress of a micro-batch of one source; it began 10 s after the one before."""
    shown: dict[str, dict[str, int]] = {}
    for tp, offset in (latest or {}).items():
        shown.setdefault(tp.topic, {})[str(tp.partition)] = offset
    began = datetime.fromtimestamp(START + 10 * batch, timezone.utc)
    return StreamingQueryProgress.fromJson(
        {
            "id": str(QUERY_ID),
            "runId": str(RUN_ID),
            "name": name,
            "timestamp": began.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "batchId": batch,
            "batchDuration": 900,
            "durationMs": {"triggerExecution": 900, "addBatch": 700, "latestOffset": 100},
            "stateOperators": [],
            "sources": [
                {
                    "description": "kafkagroup",
                    "startOffset": None if start is None else json.dumps(start),
                    "endOffset": json.dumps(end),
                    "latestOffset": None if latest is None else json.dumps(shown),
                    "numInputRows": rows,
                    "inputRowsPerSecond": 1.0,
                    "processedRowsPerSecond": 1.0,
                    "metrics": {},
                }
            ],
            "sink": {"description": "noop", "numOutputRows": rows, "metrics": {}},
            "numInputRows": rows,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
            "observedMetrics": {},
        }
    )
