"""`metrics.start`: start exporters, and look up end offsets and open transactions at the brokers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import Described
from kafkagroup.metrics import catalog
from kafkagroup.metrics.catalog import Point, point
from kafkagroup.metrics.exporter import Exporter, Exports, Gauges, SampleFile, Update

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from pyspark.sql import SparkSession

    from kafkagroup.metrics.meter import MetricsListener
    from kafkagroup.metrics.prometheus import PrometheusEndpoint


log = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0


class Watcher:
    """Looks up end offsets and open transactions, on a thread of its own, until `close`.

    Args:
        settings: The settings of the Kafka clients.
        prefixes: Each sink's `transactional.id.prefix`.
        seconds: The time between two lookups.
        listener: The listener, which has the queries' partitions.
        export: Called with each update about transactions.
    """

    def __init__(
        self,
        settings: Settings,
        prefixes: Sequence[str],
        seconds: float,
        listener: MetricsListener,
        export: Callable[[Update], None],
    ) -> None:
        self._prefixes, self._seconds, self._listener, self._export = tuple(prefixes), seconds, listener, export
        self._client = KafkaClient(settings)
        self._read_committed = settings.get("isolation.level") == "read_committed"
        self._gauges = Gauges()
        # The last problem of each kind of lookup, to log each problem once.
        self._problems: dict[str, str] = {}
        self._ended = False
        self._wake = threading.Event()
        listener.on_new_query = self._wake.set
        self._thread = threading.Thread(target=self._run, name="kafkagroup-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close the connections."""
        self._ended = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._client):
            while not self._ended:
                began = time.monotonic()
                self._note("the end offsets", self._look_at_ends)
                if self._prefixes:
                    self._check_transactions()
                self._wake.wait(max(0.0, began + self._seconds - time.monotonic()))
                self._wake.clear()

    def _look_at_ends(self) -> None:
        if self._client.cluster_id is None:
            self._client.run(self._client.metadata((), Deadline(self._seconds)))
        cluster, at = self._client.cluster_id, time.time()
        partitions = self._listener.partitions(cluster)
        if partitions:
            asked = end_offsets(self._client, partitions, Deadline(self._seconds), read_committed=self._read_committed)
            # If this lookup fails, the time of the lag stays old, and `KafkagroupLagIsOld` fires.
            self._listener.look(cluster, self._client.run(asked), at)

    def _check_transactions(self) -> None:
        points: list[Point] = []
        for prefix in self._prefixes:
            self._note(f"the open transactions of {prefix}", partial(self._add_points, prefix, points))
        self._export(Update(tuple(points), self._gauges.replace(points)))

    def _note(self, name: str, look: Callable[[], object]) -> None:
        """Run a lookup; log its problem, unless the previous lookup had the same problem."""
        try:
            look()
        except KafkaGroupError as error:
            if self._problems.get(name) != str(error):
                log.warning("metrics: %s are unknown: %s", name, error)
            self._problems[name] = str(error)
        else:
            self._problems.pop(name, None)

    def _add_points(self, prefix: str, points: list[Point]) -> None:
        sink, deadline = TwoPhaseCommit(self._client, prefix), Deadline(_LOOK_SECONDS)
        decision = self._client.run(sink.decided(deadline), _LOOK_SECONDS)
        undecided = self._client.run(sink.undecided(deadline), _LOOK_SECONDS)
        points += [
            point(catalog.TRANSACTIONS, 0 if decision is None else len(decision.transactions), prefix, "decided"),
            point(catalog.TRANSACTIONS, len(undecided), prefix, "undecided"),
            point(catalog.OLDEST_TRANSACTION, _oldest(undecided, time.time()), prefix),
        ]


def _oldest(transactions: Iterable[Described], now: float) -> float:
    return max((max(0.0, now - one.started_ms / 1000) for one in transactions if one.started_ms >= 0), default=0.0)


__all__ = ["Metrics", "prometheus_endpoint", "start"]


class Metrics:
    """Running metrics, which end with `close` or the program. Usable as a context manager.

    Attributes:
        prometheus_address: The `host:port` of the endpoint for Prometheus; None: there is no endpoint.
    """

    def __init__(
        self,
        spark: SparkSession,
        listener: MetricsListener,
        exports: Exports,
        watcher: Watcher | None,
        prometheus_address: str | None,
    ) -> None:
        self._spark, self._listener, self._exports, self._watcher = spark, listener, exports, watcher
        self.prometheus_address = prometheus_address
        self._closed = False

    def close(self) -> None:
        """Stop listening to Spark, and close the exporters. May be called again, and after Spark has stopped."""
        if self._closed:
            return
        self._closed = True
        # A stopped session has no listeners, and raises an error of py4j or of gRPC.
        with suppress(Exception):
            self._spark.streams.removeListener(self._listener)
        if self._watcher is not None:
            self._watcher.close()
        self._exports.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    spark: SparkSession,
    *,
    prometheus: str | None = None,
    otlp: str | None = None,
    otlp_seconds: float = 30.0,
    meter_provider: MeterProvider | None = None,
    file: str | Path | None = None,
    exporters: Sequence[Exporter] = (),
    settings: Settings | None = None,
    transactions: Sequence[str] = (),
    look_seconds: float = 10.0,
) -> Metrics:
    """Export the metrics of every streaming query of this session, from the query's next micro-batch on.

    Args:
        spark: The session; it may be one of Spark Connect.
        prometheus: The `host:port` of an endpoint for Prometheus. The default host is `127.0.0.1`. With port 0, the
            system chooses the port: see `Metrics.prometheus_address`. Needs the extra `metrics`.
        otlp: The URL of an OpenTelemetry collector, such as `http://collector:4318`. Needs the extra `otel`.
        otlp_seconds: The time between two exports to the collector.
        meter_provider: A meter provider of OpenTelemetry that the program has set up itself. Needs the extra `otel`.
        file: A file to which samples are appended, one JSON object a line; `kafkagroup plot` draws this file.
        exporters: The program's own exporters.
        settings: The settings of the Kafka client, to look up end offsets even while a micro-batch runs. Without
            settings, the end offsets are those at the planning of the last finished micro-batch.
        transactions: The `transactional.id.prefix` of each exactly-once sink, to look for its open transactions. The
            user needs DESCRIBE on the transactional ids, and on the groups that begin with the prefix.
        look_seconds: The time between two lookups.

    Raises:
        InvalidConfigurationError: No exporter is given, an extra is missing, or an address or file cannot be used.
    """
    # Imported here, because pictures of recorded samples need no Spark.
    from kafkagroup.metrics.meter import MetricsListener

    if transactions and settings is None:
        raise InvalidConfigurationError("metrics.start needs settings to look up transactions at the brokers.")
    made: list[Exporter] = []
    address: str | None = None
    watcher: Watcher | None = None
    try:
        if prometheus is not None:
            endpoint = prometheus_endpoint(prometheus)
            made.append(endpoint)
            address = endpoint.address
        if otlp is not None:
            made.append(_otlp(otlp, otlp_seconds))
        if meter_provider is not None:
            made.append(_opentelemetry(meter_provider))
        if file is not None:
            made.append(SampleFile(file))
        if not made and not exporters:
            raise InvalidConfigurationError(
                "metrics.start needs a destination: prometheus, otlp, meter_provider, file or exporters."
            )
        exports = Exports([*made, *exporters])
        listener = MetricsListener(exports)
        if settings is not None:
            watcher = Watcher(settings, transactions, look_seconds, listener, exports.export)
        # Spark refuses the listener if the session has stopped.
        spark.streams.addListener(listener)
    except BaseException:
        if watcher is not None:
            watcher.close()
        for one in made:
            one.close()
        raise
    return Metrics(spark, listener, exports, watcher, address)


def prometheus_endpoint(address: str) -> PrometheusEndpoint:
    """Return an endpoint that serves Prometheus at `host:port`.

    Raises:
        InvalidConfigurationError: The extra is missing, or the address is malformed or in use.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65_535:
        raise InvalidConfigurationError(f"prometheus={address!r} is not host:port, such as 127.0.0.1:9400.")
    try:
        from kafkagroup.metrics.prometheus import PrometheusEndpoint
    except ModuleNotFoundError as missing:
        raise _missing_extra(missing, "prometheus_client", "metrics") from None
    return PrometheusEndpoint(host.strip("[]") or "127.0.0.1", int(port))


def _otlp(endpoint: str, seconds: float) -> Exporter:
    try:
        from kafkagroup.metrics.otel import OtlpExporter

        return OtlpExporter(endpoint, seconds)
    except ModuleNotFoundError as missing:
        raise _missing_extra(missing, "opentelemetry", "otel") from None


def _opentelemetry(provider: MeterProvider) -> Exporter:
    try:
        from kafkagroup.metrics.otel import OpenTelemetryExporter
    except ModuleNotFoundError as missing:
        raise _missing_extra(missing, "opentelemetry", "otel") from None
    return OpenTelemetryExporter(provider)


def _missing_extra(missing: ModuleNotFoundError, library: str, extra: str) -> Exception:
    if (missing.name or "").partition(".")[0] != library:
        return missing
    return InvalidConfigurationError(f"These metrics need {missing.name}: pip install 'kafkagroup[{extra}]'.")
