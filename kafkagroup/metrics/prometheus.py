"""Prometheus: an HTTP endpoint that a Prometheus server scrapes. Needs the extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.metrics.board import Board, Distribution
from kafkagroup.metrics.catalog import Kind, Metric
from kafkagroup.metrics.exporter import Update


class BoardCollector(Collector):
    """Gives a registry of prometheus-client the figures of a board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has figures."""
        numbers, distributions = self._board.everything()
        for metric, figures in numbers.items():
            yield _family_of_numbers(metric, figures)
        for metric, seen in distributions.items():
            yield _family_of_distributions(metric, seen)

    def describe(self) -> Iterator[Family]:
        """Yield nothing: a registry asks for the names at registration, when there are no figures yet."""
        yield from ()


class PrometheusEndpoint:
    """Serves the figures at `http://HOST:PORT/metrics`.

    Args:
        host: The address to listen at. Whoever reaches it can read names of queries, groups and topics.
        port: The port; 0: any free one.

    Raises:
        InvalidConfigurationError: The address is in use or not of this machine.
    """

    def __init__(self, host: str, port: int) -> None:
        self._board = Board()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BoardCollector(self._board))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InvalidConfigurationError(f"Prometheus cannot be served at {host}:{port}: {error}.") from None
        self.address = f"{host}:{self._server.server_port}"

    def export(self, update: Update) -> None:
        """Let the next scrape see the update."""
        self._board.apply(update)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _family_of_numbers(metric: Metric, figures: Mapping[tuple[str, ...], float]) -> Family:
    labels = [label.name for label in metric.labels]
    family: GaugeMetricFamily | CounterMetricFamily
    if metric.kind is Kind.GAUGE:
        family = GaugeMetricFamily(metric.name, metric.doc, labels=labels)
    else:
        family = CounterMetricFamily(metric.name, metric.doc, labels=labels)
    for values, figure in figures.items():
        family.add_metric(values, figure)
    return family


def _family_of_distributions(metric: Metric, seen: Mapping[tuple[str, ...], Distribution]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.doc, labels=[label.name for label in metric.labels])
    for values, distribution in seen.items():
        buckets = [(_text(bound), float(count)) for bound, count in distribution.cumulative()]
        family.add_metric(values, buckets=buckets, sum_value=distribution.sum)
    return family


def _text(bound: float) -> str:
    return "+Inf" if bound == inf else str(bound)
