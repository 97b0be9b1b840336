"""Cost of metrics: the figures of a trigger in the driver, and the listener beside it.

    ./run bench metrics [--rounds 7] [--batches 40] [--partitions 10,100,1000] [--save FILE]

`trigger`: a stream in a group, local[2], 1,000 records a micro-batch, with and without `metrics.start`, in turns; the
median `triggerExecution` of each run. `reader`: the figures that the driver's process adds to the end offset of a
micro-batch, which every query pays. `listener`: a progress turned into figures for each exporter, on a thread beside
the trigger. `reader` and `listener` are in core milliseconds per micro-batch, and in percent of the median trigger.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from assignors.model import TopicPartition
from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.stream import read_to_the_end
from benchmarks.read.topics import Load, fill
from kafka_source.model import driver_figures
from kafka_source.model.driver_figures import Commit, DriverFigures
from kafka_source.model.stream_offset import Span, StreamOffset
from kafkagroup import metrics
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.metrics.exporter import Exporter, SampleFile
from kafkagroup.metrics.meter import QueryMeter
from kafkagroup.metrics.otel import OpenTelemetryExporter
from kafkagroup.metrics.prometheus import PrometheusEndpoint

ALLOWED = 0.01
RECORDS_A_BATCH = 1000
_REPEATS = 200


def main() -> None:
    parser = parser_of(__doc__, rounds=7, saves=True)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--partitions", default="10,100,1000")
    given = begin(parser, HEAD)
    load = Load(100, RECORDS_A_BATCH * given.batches)
    with EmbeddedKafka(config={"log.retention.ms": -1}, heap="1g", jvm_options=()) as kafka:
        fill(kafka, load)
        spark = sources.session()
        figures = measure_triggers(spark, kafka.bootstrap_servers, load, given.rounds)
        spark.stop()
    trigger = median(figures.seconds["without"])
    print("\n| partitions | part | ms a micro-batch | of a trigger | ≤ 1 % |\n| ---: | --- | ---: | ---: | --- |")
    for count in map(int, given.partitions.split(",")):
        for part, seconds in measure_parts(count).items():
            share = seconds / trigger
            # The listener runs beside the trigger, so only the reader's part has a bar.
            verdict = "" if part != "reader" else "met" if share <= ALLOWED else "MISSED"
            print(f"| {count} | {part} | {seconds * 1000:.3f} | {share:.2%} | {verdict} |", flush=True)
    save(given, [figures])


def measure_triggers(spark: SparkSession, servers: str, load: Load, rounds: int) -> Figures:
    def run() -> float:
        frame = sources.frame(
            spark, sources.NATIVE, servers, load.topic, stream=True, maxOffsetsPerTrigger=RECORDS_A_BATCH,
            **sources.new_group(2),
        )  # fmt: skip
        # The first micro-batches load code and join the group.
        return median(p.durationMs["triggerExecution"] for p in read_to_the_end(frame)[3:]) / 1000

    def run_with_metrics() -> float:
        with tempfile.TemporaryDirectory() as folder:
            with metrics.start(spark, prometheus="127.0.0.1:0", file=Path(folder) / "samples.jsonl"):
                return run()

    figures = Figures(f"trigger of {RECORDS_A_BATCH} records")
    return in_turns(figures, {"without": run, "with metrics": run_with_metrics}, rounds)


def measure_parts(partitions: int) -> dict[str, float]:
    """Return the seconds of each part for one micro-batch of a query with this number of partitions."""
    ends = [_end(partitions, batch) for batch in range(2)]
    progresses = itertools.cycle([_progress(partitions, 0, ends[0], None), _progress(partitions, 1, ends[1], ends[0])])
    found = {"reader": _seconds(lambda: json.dumps(_driver_figures(0).to_json()))}
    meter = QueryMeter("bench")
    found["listener: figures"] = _seconds(lambda: meter.progress(next(progresses), 0.0))
    update = meter.progress(next(progresses), 0.0)
    with tempfile.TemporaryDirectory() as folder:
        exporters: dict[str, Exporter] = {
            "Prometheus": PrometheusEndpoint("127.0.0.1", 0),
            "OpenTelemetry": OpenTelemetryExporter(MeterProvider()),
            "file": SampleFile(Path(folder) / "samples.jsonl"),
        }
        for name, exporter in exporters.items():
            with closing(exporter):
                found[f"listener: {name}"] = _seconds(lambda of=exporter: of.export(update))  # type: ignore[misc]
    return found


def _seconds(work: Callable[[], object]) -> float:
    # Measure processor time, because this thread does all of the work.
    times = []
    for _ in range(_REPEATS):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return median(times)


def _driver_figures(batch: int) -> DriverFigures:
    at = 1_700_000_000_000 + 1000 * batch
    return DriverFigures(at, "bench", (Commit(at, 12.3),))


def _partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]


def _end(partitions: int, batch: int) -> dict[str, Any]:
    spans = {tp: Span(100 * batch, 100 * batch + 100, tp.partition % 4) for tp in _partitions(partitions)}
    offset = StreamOffset(spans, generation=7, slots=4)
    return {**offset.to_json(), driver_figures.KEY: _driver_figures(batch).to_json()}


def _progress(partitions: int, batch: int, end: dict[str, Any], start: dict[str, Any] | None) -> StreamingQueryProgress:
    latest = {"orders": {str(number): 100 * batch + 150 for number in range(partitions)}}
    return StreamingQueryProgress.fromJson(
        {
            "id": "00000000-0000-0000-0000-000000000001",
            "runId": "00000000-0000-0000-0000-000000000002",
            "name": "bench",
            "timestamp": "2026-11-23T02:00:00.000Z",
            "batchId": batch,
            "batchDuration": 200,
            "durationMs": {"triggerExecution": 200, "addBatch": 100, "latestOffset": 20, "walCommit": 30},
            "stateOperators": [],
            "sources": [
                {
                    "description": "kafkagroup",
                    "startOffset": None if start is None else json.dumps(start),
                    "endOffset": json.dumps(end),
                    "latestOffset": json.dumps(latest),
                    "numInputRows": 100 * partitions,
                    "inputRowsPerSecond": 1.0,
                    "processedRowsPerSecond": 1.0,
                    "metrics": {},
                }
            ],
            "sink": {"description": "noop", "numOutputRows": -1, "metrics": {}},
            "numInputRows": 100 * partitions,
        }
    )


if __name__ == "__main__":
    main()
