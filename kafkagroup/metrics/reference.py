"""The tables of docs/metrics.md, from the catalog."""

from __future__ import annotations

from kafkagroup.metrics.catalog import METRICS, Label, Metric


def as_markdown() -> str:
    """Return a table of all metrics, and one of their labels."""
    labels: dict[str, Label] = {label.name: label for metric in METRICS for label in metric.labels}
    rows = [
        "| metric | type | labels | OpenTelemetry | what it is |",
        "| --- | --- | --- | --- | --- |",
        *map(_row, METRICS),
        "",
        "| label | attribute of OpenTelemetry | what it is |",
        "| --- | --- | --- |",
        *(f"| `{label.name}` | `{label.attribute}` | {label.doc} |" for label in labels.values()),
    ]
    return "\n".join(rows) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(label.name for label in metric.labels)
    attributes = "".join(f", `{name}={value}`" for name, value in metric.attributes)
    return (
        f"| `{metric.name}` | {metric.kind.value} | {labels} | `{metric.otel}` in `{metric.unit}`{attributes} "
        f"| {metric.doc} |"
    )
