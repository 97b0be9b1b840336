"""Pictures of recorded samples: lag, throughput, assignment and latency of a streaming query.

    from kafkagroup import plots
    from kafkagroup.metrics import read_samples

    plots.overview(read_samples("samples.jsonl")).savefig("incident.png")

Plots need the extra `plots`. A file may have samples of several queries and sources; a picture shows one source.
"""

from kafka_source.errors import InvalidConfigurationError

try:
    from kafkagroup.plots.pictures import assignment, lag, latency, overview, throughput
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "matplotlib":
        raise
    raise InvalidConfigurationError(f"Plots need {missing.name}: pip install 'kafkagroup[plots]'.") from None

__all__ = ["assignment", "lag", "latency", "overview", "throughput"]
