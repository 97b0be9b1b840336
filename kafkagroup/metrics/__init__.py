"""Metrics of streaming queries, for Prometheus, OpenTelemetry and files; one line in the driver starts them.

    from kafkagroup import metrics

    metrics.start(spark, prometheus="127.0.0.1:9400")

docs/metrics.md lists the metrics. The metrics come from the progress that Spark reports after each micro-batch, and
from lookups at the brokers (`settings`). A `StreamingQueryListener` gets the progress, also with Spark Connect.
"""

# Provisional names are re-exported by `name as name`, in the same statements as the public ones.
# ruff: noqa: I001

from kafkagroup.metrics.catalog import Point as Point, Series as Series
from kafkagroup.metrics.exporter import Exporter as Exporter, Update as Update, read_samples
from kafkagroup.metrics.sample import PartitionSample, Sample
from kafkagroup.metrics.start import Metrics, start

__all__ = ["Metrics", "PartitionSample", "Sample", "read_samples", "start"]
