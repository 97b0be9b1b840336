"""The lag of a slow query without limits, in the metrics, the command and Kafka's own tool, and the alerts that fire.

    ./run bench lag [--minutes 10] [--prometheus PROGRAM] [--save FILE]

1,000 records a second arrive, and the query's sink takes 1.5 ms for each, so each micro-batch takes 1.5 times as long
as the previous one. With a Prometheus (2.42 or later), the alert rules watch five queries: this query, the same query
as listeners without `settings` see it, a query that brokers throttle and whose quota is half the load, a query with bad
records, and a query that fails. `./run bench plot FILE PICTURE` draws the figures of `--save`.
"""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as parse
from pyspark.sql import DataFrame, SparkSession

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from kafkagroup import Settings, metrics
from kafkagroup.embedded import EmbeddedKafka, run_java
from testbed.load import Load

TOPIC, PARTITIONS, PER_SECOND = "orders", 4, 1_000
SECONDS_A_RECORD = 0.0015
LOOK_SECONDS = 10.0
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RULES = Path(__file__).parents[1] / "observability" / "prometheus-rules.yml"


def write_slowly(frame: DataFrame, _batch: int) -> None:
    time.sleep(frame.count() * SECONDS_A_RECORD)


def fail(_frame: DataFrame, batch: int) -> None:
    if batch:
        raise RuntimeError("the sink is full")


class Lags:
    """Samples the lag in each way until `close`."""

    def __init__(self, ways: dict[str, Callable[[], float | None]]) -> None:
        self.series: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        self._began, self._closing = time.time(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=way) for way in ways.items()]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str, look: Callable[[], float | None]) -> None:
        while not self._closing.is_set():
            began = time.time()
            if (lag := look()) is not None:
                self.series[name].append((round((began + time.time()) / 2 - self._began, 1), lag))
            self._closing.wait(max(0.0, began + LOOK_SECONDS - time.time()))

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()


def of_exporter(address: str | None) -> float | None:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        samples = [sample for family in parse(answer.read().decode()) for sample in family.samples]
    lags = [s.value for s in samples if s.name == "kafkagroup_consumer_lag_records" and s.labels["query"] == "slow"]
    return sum(lags) if lags else None


def of_command(servers: str) -> float | None:
    command = [sys.executable, "-m", "kafkagroup.cli", "group", "slow", "-b", servers, "--summary", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lag: float | None = json.loads(done.stdout)["group"][0]["lag"] if done.returncode == 0 else None
    return lag


def of_tool(servers: str) -> float | None:
    told = run_java(GROUP_TOOL, "--bootstrap-server", servers, "--describe", "--group", "slow").stdout
    lags = re.findall(r"^slow\s+\S+\s+\d+\s+\d+\s+\d+\s+(\d+)\s", told, flags=re.MULTILINE)
    return sum(map(float, lags)) if len(lags) == PARTITIONS else None


class Prometheus:
    """A Prometheus with the project's rules."""

    def __init__(self, program: Path, folder: Path, targets: dict[str, str | None], rules: Path = RULES) -> None:
        jobs = [
            {
                "job_name": name.strip(", ") or "with settings",
                "static_configs": [{"targets": [target]}],
                # Two listeners report the same queries, so a query's name also says which listener has reported it.
                "metric_relabel_configs": [
                    {"source_labels": ["query"], "regex": "(.+)", "target_label": "query", "replacement": f"$1{name}"}
                ],
            }
            for name, target in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "10s", "evaluation_interval": "10s"},
            "rule_files": [str(rules)],
            "scrape_configs": jobs,
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self._log = (folder / "log").open("w+")
        command = [str(program), "--web.listen-address=127.0.0.1:0", f"--config.file={folder / 'prometheus.yml'}"]
        self._process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=self._log, stderr=self._log
        )
        self._began = time.time()

    def fired(self) -> list[tuple[str, str, float, float]]:
        """Return the alerts that fired, with the query and the seconds at which they began and ended."""
        self._log.seek(0)
        found = re.search(r"[Ll]istening on.*address=(\S+)", self._log.read())
        assert found, "Prometheus does not listen"
        asked = {"query": 'ALERTS{alertstate="firing"}', "start": self._began, "end": time.time(), "step": "10"}
        url = f"http://{found[1]}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return sorted(
            (
                one["metric"]["alertname"].removeprefix("Kafkagroup"),
                one["metric"].get("query", ""),
                round(one["values"][0][0] - self._began),
                round(one["values"][-1][0] - self._began),
            )
            for one in result
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


def queries(spark: SparkSession, servers: str, folder: Path, *, all_of_them: bool) -> None:
    """Start the slow query, or all queries."""
    quota = {"quota.records.per.second": str(PER_SECOND // 2), "kafka.client.id": "throttled"}
    bad = {"value.format": "json", "value.schema": "id int", "mode": "PERMISSIVE"}
    kinds: Sequence[tuple[str, dict[str, str], Callable[[DataFrame, int], None]]] = (
        ("slow", {}, write_slowly),
        ("throttled", quota, lambda frame, _: frame.write.format("noop").mode("append").save()),
        ("bad", bad, lambda frame, _: frame.write.format("noop").mode("append").save()),
        ("failing", {}, fail),
    )
    for name, options, write in kinds if all_of_them else kinds[:1]:
        frame = sources.frame(
            spark, sources.NATIVE, servers, TOPIC, stream=True, settings={**options, "kafka.group.id": name}
        )
        writer = frame.writeStream.foreachBatch(write).queryName(name)
        writer = writer if name in ("slow", "throttled") else writer.trigger(processingTime="30 seconds")
        writer = writer.option("checkpointLocation", str(folder / name))
        query = writer.start()
        while query.lastProgress is None:
            time.sleep(1)
            # Try again, because Spark waits only 10 s for a worker, which may take longer on a busy machine.
            query = query if query.isActive else writer.start()


@contextmanager
def running(program: Path | None) -> Iterator[tuple[Lags, Prometheus | None]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        kafka = stack.enter_context(EmbeddedKafka())
        servers = kafka.bootstrap_servers
        kafka.create_topic(TOPIC, PARTITIONS)
        spark = sources.session(jars=())
        stack.callback(spark.stop)
        with_settings = metrics.start(
            spark, prometheus="127.0.0.1:0", settings=Settings({"bootstrap.servers": servers})
        )
        prometheus = None
        if program is not None:
            without = metrics.start(spark, prometheus="127.0.0.1:0")
            brokers = [sys.executable, "-m", "kafkagroup.cli", "quota", "brokers", "-b", servers, "--yes"]
            subprocess.run([*brokers, "--client-id", "throttled", "--consumer-bytes", "10000"], check=True)
            targets = {"": with_settings.prometheus_address, ", no settings": without.prometheus_address}
            prometheus = Prometheus(program, folder, targets)
            stack.callback(prometheus.close)
        queries(spark, servers, folder, all_of_them=program is not None)
        stack.callback(Load(kafka.internal_bootstrap_servers, TOPIC, PER_SECOND).close)
        ways = {
            "metrics": lambda: of_exporter(with_settings.prometheus_address),
            "kafkagroup group": lambda: of_command(servers),
            "kafka-consumer-groups": lambda: of_tool(servers),
        }
        lags = Lags(ways)
        stack.callback(lags.close)
        yield lags, prometheus


def main() -> None:
    parser = parser_of(__doc__, saves=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--prometheus", type=Path, help="the program of Prometheus")
    given = begin(parser)
    with running(given.prometheus) as (lags, prometheus):
        until = time.monotonic() + 60 * given.minutes
        while time.monotonic() < until:
            time.sleep(min(60.0, max(0.0, until - time.monotonic())))
            newest = {name: series[-1:] for name, series in lags.series.items()}
            fired = [] if prometheus is None else prometheus.fired()
            print(newest, *fired, sep="\n  ", flush=True)
            saved = {"machine": given.machine, "lag": lags.series, "fired": fired}
            if given.save:
                given.save.write_text(json.dumps(saved) + "\n")


if __name__ == "__main__":
    main()
