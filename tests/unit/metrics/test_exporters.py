"""What scrapers, collectors and files get; Prometheus' own parser and OpenTelemetry's own messages read it."""

import gc
import logging
import stat
import threading
import urllib.request
import weakref
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.driver_figures import Commit, DriverFigures
from kafka_source.model.stream_offset import Span
from kafkagroup.metrics import Update, catalog, read_samples
from kafkagroup.metrics.catalog import Series, point
from kafkagroup.metrics.exporter import Exports, SampleFile
from kafkagroup.metrics.meter import QueryMeter
from kafkagroup.metrics.otel import OpenTelemetryExporter, OtlpExporter, service
from kafkagroup.metrics.prometheus import PrometheusEndpoint
from tests.support.progresses import START, end_of, progress_of

TOPIC = 'or"ders\\'
A = TopicPartition(TOPIC, 0)
FIGURES = DriverFigures(round(START * 1000), "billing", (Commit(1, 20.0), Commit(2, 400.0)))
UPDATE = QueryMeter("orders").progress(progress_of(0, end_of({A: Span(0, 60, 0)}, FIGURES), {A: 100}), START)
SERIES = ("orders", "0", "billing", "0", TOPIC, "0")
LAG, RECORDS = catalog.LAG_RECORDS.otel, catalog.RECORDS.otel
LABELS = {"query": "orders", "source": "0", "group": "billing"}


def scrape(address: str, accept: str = "text/plain") -> str:
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.fixture
def endpoint() -> Iterator[PrometheusEndpoint]:
    with closing(PrometheusEndpoint("127.0.0.1", 0)) as made:
        yield made


def value(families: list[Family], name: str, **labels: str) -> float:
    (found,) = (
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return float(found)


def test_prometheus_own_parser_reads_every_kind_of_metric(endpoint: PrometheusEndpoint) -> None:
    endpoint.export(UPDATE)
    endpoint.export(Update((point(catalog.TERMINATIONS, 1, "orders", "false"),)))
    families = list(parse(scrape(endpoint.address)))
    kinds = {family.name: family.type for family in families}
    assert kinds["kafkagroup_consumer_lag_records"] == "gauge"
    assert kinds["kafkagroup_consumer_records"] == "counter"
    assert kinds["kafkagroup_consumer_commit_latency_seconds"] == "histogram"
    partition = {**LABELS, "slot": "0", "topic": TOPIC, "partition": "0"}
    assert value(families, "kafkagroup_consumer_lag_records", **partition) == 40
    assert value(families, "kafkagroup_consumer_records_total", **partition) == 60
    latency = "kafkagroup_consumer_commit_latency_seconds"
    assert value(families, f"{latency}_bucket", le="0.025", **LABELS) == 1
    assert value(families, f"{latency}_bucket", le="+Inf", **LABELS) == 2
    assert value(families, f"{latency}_count", **LABELS) == 2
    assert value(families, f"{latency}_sum", **LABELS) == pytest.approx(0.42)


def test_the_openmetrics_parser_which_is_stricter_reads_it_too(endpoint: PrometheusEndpoint) -> None:
    endpoint.export(UPDATE)
    families = list(parse_openmetrics(scrape(endpoint.address, "application/openmetrics-text; version=1.0.0")))
    assert value(families, "kafkagroup_consumer_lag_records", topic=TOPIC) == 40


def test_counters_add_up_and_gauges_that_are_gone_are_not_shown(endpoint: PrometheusEndpoint) -> None:
    lag = next(p.series for p in UPDATE.points if p.series.metric is catalog.LAG_RECORDS)
    endpoint.export(UPDATE)
    endpoint.export(Update(UPDATE.points, (lag,)))
    endpoint.export(Update((), (lag, Series(catalog.LAG_RECORDS, ("never", "there", "", "0", "t", "0")))))
    families = list(parse(scrape(endpoint.address)))
    assert value(families, "kafkagroup_consumer_records_total") == 120
    assert "kafkagroup_consumer_lag_records" not in {family.name for family in families}


def test_an_address_that_is_in_use_is_one_line(endpoint: PrometheusEndpoint) -> None:
    host, _, port = endpoint.address.partition(":")
    with pytest.raises(InvalidConfigurationError, match=f"Prometheus cannot be served at {endpoint.address}"):
        PrometheusEndpoint(host, int(port))


@pytest.fixture
def collector() -> Iterator[tuple[str, list[OtlpMetric]]]:
    """A collector of OpenTelemetry: its URL, and the metrics that it got."""
    got: list[OtlpMetric] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            request = ExportMetricsServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            got.extend(m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", got
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", [None, "billing-job"])
def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    if name is not None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    assert service().attributes["service.name"] == (name or "kafkagroup")


def test_a_closed_exporter_leaves_no_gauges_in_the_programs_provider() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])

    def figures() -> dict[str, float]:
        found = reader.get_metrics_data()
        metrics = [m for r in found.resource_metrics for s in r.scope_metrics for m in s.metrics] if found else []
        points = [(metric.name, one) for metric in metrics for one in metric.data.data_points]
        return {name: one.value for name, one in points if isinstance(one, NumberDataPoint)}

    def lag(records: float) -> Update:
        return Update((point(catalog.LAG_RECORDS, records, *SERIES), point(catalog.RECORDS, 10, *SERIES)))

    first = OpenTelemetryExporter(provider)
    first.export(lag(500))
    assert figures() == {LAG: 500, RECORDS: 10}
    second = OpenTelemetryExporter(provider)
    first.close()
    assert LAG not in figures()
    second.export(lag(3))
    first.close()
    assert figures() == {LAG: 3, RECORDS: 20}
    third = OpenTelemetryExporter(provider)
    third.export(lag(4))
    second.close()
    assert figures()[LAG] == 4
    kept = weakref.ref(provider)
    third.close()
    provider.shutdown()
    del first, second, third, provider
    gc.collect()
    assert kept() is None, "a provider lives as long as the program needs it"


def test_a_collector_of_opentelemetry_gets_names_units_and_attributes(collector: tuple[str, list[OtlpMetric]]) -> None:
    url, got = collector
    exporter = OtlpExporter(url, 3600)
    exporter.export(UPDATE)
    exporter.close()
    by_name = {metric.name: metric for metric in got}
    (lag,) = by_name["kafkagroup.consumer.lag"].gauge.data_points
    assert lag.as_double == 40
    assert {attribute.key: attribute.value.string_value for attribute in lag.attributes} == {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "0",
        "kafkagroup.query": "orders",
        "kafkagroup.source": "0",
        "kafkagroup.slot": "0",
    }
    consumed = by_name["messaging.client.consumed.messages"]
    assert consumed.unit == "{message}"
    assert consumed.sum.is_monotonic
    assert [one.as_double for one in consumed.sum.data_points] == [60]
    (commits,) = by_name["messaging.client.operation.duration"].histogram.data_points
    assert (commits.count, commits.sum) == (2, pytest.approx(0.42))
    assert tuple(commits.explicit_bounds) == catalog.COMMIT_LATENCY.buckets
    kept = weakref.ref(exporter)
    del exporter
    gc.collect()
    assert kept() is None


def test_a_file_of_samples_is_the_users_own_and_is_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    for _ in range(2):
        with closing(SampleFile(path)) as file:
            file.export(UPDATE)
            assert read_samples(path)[-1] == UPDATE.samples[0]
    assert len(read_samples(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file_again:
        file_again.write('{"version": 1, "at"')
    assert len(read_samples(path)) == 2
    with path.open("a") as file_again:
        file_again.write("\n")
    with pytest.raises(InvalidConfigurationError, match=r"samples.jsonl, line 3 is not a sample"):
        read_samples(path)


def test_files_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="cannot be read"):
        read_samples(tmp_path / "nothing")
    with pytest.raises(InvalidConfigurationError, match="cannot be written"):
        SampleFile(tmp_path / "no" / "folder")


class Broken:
    def export(self, update: Update) -> None:
        raise RuntimeError("full")

    def close(self) -> None:
        raise RuntimeError("also full")


class Kept:
    def __init__(self) -> None:
        self.updates: list[Update] = []

    def export(self, update: Update) -> None:
        self.updates.append(update)

    def close(self) -> None:
        self.updates.append(Update())


def test_an_exporter_that_fails_is_told_once_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    exports = Exports([Broken(), kept])
    exports.export(UPDATE)
    exports.export(UPDATE)
    exports.close()
    assert kept.updates == [UPDATE, UPDATE, Update()]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "metrics exporter=Broken failed: RuntimeError('full')",
        "metrics exporter=Broken failed to close: RuntimeError('also full')",
    ]


def test_an_event_that_comes_after_the_end_is_left_out_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exports = Exports([SampleFile(tmp_path / "samples.jsonl")])
    exports.export(UPDATE)
    exports.close()
    exports.close()
    exports.export(UPDATE)
    assert caplog.records == []
    assert len(read_samples(tmp_path / "samples.jsonl")) == 1
