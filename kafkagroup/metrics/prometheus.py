"""Prometheus: an HTTP endpoint that a Prometheus server scrapes. Needs the extra `metrics`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.metrics.catalog import METRICS, Kind, Metric
from kafkagroup.metrics.exporter import Update


class _AllMetrics(Collector):
    """All metrics of the catalog; a scrape sees an update as a whole or not at all."""

    def __init__(self) -> None:
        # The metrics have a registry of their own, which is collected under the lock.
        self._registry = CollectorRegistry(auto_describe=False)
        self._lock = threading.Lock()
        self._metrics: Mapping[Metric, Gauge | Counter | Histogram] = MappingProxyType(
            {metric: self._collector(metric) for metric in METRICS}
        )

    def _collector(self, metric: Metric) -> Gauge | Counter | Histogram:
        labels = [label.name for label in metric.labels]
        if metric.kind is Kind.GAUGE:
            return Gauge(metric.name, metric.doc, labels, registry=self._registry)
        if metric.kind is Kind.COUNTER:
            return Counter(metric.name, metric.doc, labels, registry=self._registry)
        return Histogram(metric.name, metric.doc, labels, registry=self._registry, buckets=metric.buckets)

    def record(self, update: Update) -> None:
        """Record an update."""
        with self._lock:
            for series in update.gone:
                with suppress(KeyError):
                    self._metrics[series.metric].remove(*series.values)
            for point in update.points:
                found = self._metrics[point.series.metric].labels(*point.series.values)
                if isinstance(found, Gauge):
                    found.set(point.value)
                elif isinstance(found, Counter):
                    found.inc(point.value)
                else:
                    found.observe(point.value)

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has values, without the samples `…_created` that prometheus_client adds."""
        with self._lock:
            families = list(self._registry.collect())
        for family in families:
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            if family.samples:
                yield family

    def describe(self) -> Iterator[Family]:
        """Yield nothing, because a registry requests the names at registration, when there are no metrics yet."""
        yield from ()


class PrometheusEndpoint:
    """Serves the metrics at `http://HOST:PORT/metrics`.

    Args:
        host: The address to listen at. Any client that can connect sees the names of queries, groups and topics.
        port: The port; 0: any free port.

    Raises:
        InvalidConfigurationError: The address is in use, or is not an address of this machine.
    """

    def __init__(self, host: str, port: int) -> None:
        self._metrics = _AllMetrics()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._metrics)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InvalidConfigurationError(f"Prometheus cannot be served at {host}:{port}: {error}.") from None
        self.address = f"{host}:{self._server.server_port}"

    def export(self, update: Update) -> None:
        """Record an update for the next scrape."""
        self._metrics.record(update)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
