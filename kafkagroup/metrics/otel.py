"""OpenTelemetry: metrics to a collector by OTLP, or into a meter provider of the program. Needs the extra `otel`."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, MeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from kafka_source.version import __version__
from kafkagroup.metrics.catalog import METRICS, Kind, Metric
from kafkagroup.metrics.exporter import Update

_SYSTEM = ("messaging.system", "kafka")
_PATH = "/v1/metrics"

_Gauges: TypeAlias = dict[Metric, dict[tuple[str, ...], float]]


class _OpenGauges:
    """The gauges of all open exporters of a meter provider, which keeps an instrument and its callback for ever."""

    def __init__(self, meter: Meter) -> None:
        self.lock = threading.Lock()
        self.of: dict[OpenTelemetryExporter, _Gauges] = {}
        for metric in METRICS:
            if metric.kind is Kind.GAUGE:
                meter.create_observable_gauge(metric.otel, [self._reader_of(metric)], metric.unit, metric.doc)

    def _reader_of(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            with self.lock:
                figures = {values: figure for own in self.of.values() for values, figure in own[metric].items()}
            return [Observation(figure, attributes_of(metric, values)) for values, figure in figures.items()]

        return read


_PROVIDERS: WeakKeyDictionary[MeterProvider, _OpenGauges] = WeakKeyDictionary()
_LOCK = threading.Lock()


class OpenTelemetryExporter:
    """Records the metrics in a meter provider.

    Gauges are observable instruments, because only series of these instruments can disappear. The provider's readers
    request the values of gauges. Counters and histograms are recorded at each update.

    Args:
        provider: The program's meter provider.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("kafkagroup", __version__)
        with _LOCK:
            if provider not in _PROVIDERS:
                _PROVIDERS[provider] = _OpenGauges(meter)
            self._open = _PROVIDERS[provider]
        self._gauges: _Gauges = {metric: {} for metric in METRICS if metric.kind is Kind.GAUGE}
        with self._open.lock:
            self._open.of[self] = self._gauges
        self._counters: dict[Metric, Counter] = {}
        self._histograms: dict[Metric, Histogram] = {}
        for metric in METRICS:
            if metric.kind is Kind.COUNTER:
                self._counters[metric] = meter.create_counter(metric.otel, metric.unit, metric.doc)
            elif metric.kind is Kind.HISTOGRAM:
                self._histograms[metric] = meter.create_histogram(metric.otel, metric.unit, metric.doc)

    def export(self, update: Update) -> None:
        """Record an update for the provider's readers."""
        with self._open.lock:
            for series in update.gone:
                self._gauges[series.metric].pop(series.values, None)
            for point in update.points:
                metric, values = point.series.metric, point.series.values
                if metric in self._gauges:
                    self._gauges[metric][values] = point.value
                elif metric in self._counters:
                    self._counters[metric].add(point.value, attributes_of(metric, values))
                else:
                    self._histograms[metric].record(point.value, attributes_of(metric, values))

    def close(self) -> None:
        """Remove the gauges. The provider stays open, because it belongs to the program."""
        with self._open.lock:
            self._open.of.pop(self, None)


class OtlpExporter(OpenTelemetryExporter):
    """Sends the metrics to a collector by OTLP over HTTP, every `seconds` and at the end.

    Args:
        endpoint: The collector's URL; without a path, `/v1/metrics` is added. Headers, for example with a token, are
            taken from `OTEL_EXPORTER_OTLP_HEADERS`, and attributes of the resource from `OTEL_RESOURCE_ATTRIBUTES`.
        seconds: The time between two exports.
    """

    def __init__(self, endpoint: str, seconds: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        url = endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _PATH
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=url), export_interval_millis=seconds * 1000)
        self._provider = SdkMeterProvider(
            metric_readers=[reader],
            resource=service(),
            views=[
                View(
                    instrument_name=metric.otel,
                    aggregation=ExplicitBucketHistogramAggregation(boundaries=metric.buckets),
                )
                for metric in METRICS
                if metric.kind is Kind.HISTOGRAM
            ],
        )
        super().__init__(self._provider)

    def close(self) -> None:
        """Export the remaining metrics, and stop."""
        self._provider.shutdown()
        super().close()


def service() -> Resource:
    """Return the service's name and attributes; those of the environment take precedence."""
    return Resource.create({"service.name": "kafkagroup"}).merge(OTELResourceDetector().detect())


def attributes_of(metric: Metric, values: Iterable[str]) -> dict[str, str]:
    """Return the attributes of a series, by OpenTelemetry's names."""
    named = zip((label.attribute for label in metric.labels), values, strict=True)
    return dict((_SYSTEM, *metric.attributes, *named))
