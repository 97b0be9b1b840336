"""The options that reads and writes share: brokers, engine, log, `strict`, quotas."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which holds no mutable default.

from dataclasses import dataclass

from kafka_source.client_config import Settings
from kafka_source.options import kinds
from kafka_source.options.declaration import KAFKA_PREFIX, Only, Where, declared_in, option
from kafka_source.options.kinds import Engine, LogFormat, LogLevel, RecoveryStrategy


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommonOptions:
    """Options of every query.

    Attributes:
        settings: The settings of the Kafka clients: all options with the prefix `kafka.`, without the prefix.
    """

    settings: Settings

    bootstrap_servers: str = option(
        "kafka.bootstrap.servers",
        kinds.TEXT,
        "Comma-separated `host:port` list of bootstrap brokers.",
        default="",
        default_text="required",
        where=Where.ALL,
    )
    engine: Engine = option(
        "engine",
        kinds.ENGINE,
        "The client that fetches and produces: `native` (Rust, faster) or `librdkafka`. `auto` uses `native` if "
        "kafkagroup-native is installed. With `auto`, a sink with a setting of librdkafka's own, such as "
        "`kafka.statistics.interval.ms`, uses `librdkafka`.",
        default="auto",
        where=Where.ALL,
    )
    log_level: LogLevel | None = option(
        "log.level",
        kinds.LOG_LEVEL,
        "The level at which the query's Python processes log to standard error, which Spark keeps with the logs of "
        "driver and executors. Takes precedence over the environment variable `KAFKAGROUP_LOG_LEVEL`.",
        default_text="warning, or `KAFKAGROUP_LOG_LEVEL`",
        where=Where.ALL,
    )
    log_format: LogFormat | None = option(
        "log.format",
        kinds.LOG_FORMAT,
        "`text`, or `json`: one object a line, with the names of Spark's structured logs. Takes precedence over "
        "`KAFKAGROUP_LOG_FORMAT`. Logs that Spark captures (`spark.sql.pyspark.worker.logging.enabled`) have Spark's "
        "form.",
        default_text="`text`, or `KAFKAGROUP_LOG_FORMAT`",
        where=Where.ALL,
    )
    metadata_recovery_strategy: RecoveryStrategy = option(
        "kafka.metadata.recovery.strategy",
        kinds.RECOVERY_STRATEGY,
        "Reaction of a client that reaches no known broker: resolve `kafka.bootstrap.servers` again (`rebootstrap`: "
        "KIP-899, KIP-1102) or fail the query (`none`). Also accepted without `kafka.`.",
        default="rebootstrap",
        where=Where.ALL,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        kinds.MILLISECONDS,
        "Rebootstrap when no metadata response has arrived for this long. Also accepted without `kafka.`.",
        default=300_000,
        where=Where.ALL,
        units="ms",
    )
    strict: bool = option(
        "strict",
        kinds.BOOLEAN,
        "Refuse likely mistakes: a misspelt option or setting; a setting such as `group.id` without its prefix "
        "`kafka.`, if it affects reads, commits, writes or the login; a checkpoint of another group, or of other "
        "topics only; a partition in `assign` that does not exist; a first micro-batch that the sink skips. `false` "
        "only warns of likely mistakes.",
        default=True,
        where=Where.ALL,
    )
    quota_bytes_per_second: float | None = option(
        "quota.bytes.per.second",
        kinds.BYTE_RATE,
        "Byte-rate quota of all slots of a query together, or of all tasks of a sink. A read counts the bytes of "
        "fetch responses. A sink counts the bytes of keys and values before compression. A query over its quota is "
        "throttled; it does not fail and skips no records.",
        where=Where.ALL,
        units="bytes/s",
    )
    quota_records_per_second: float | None = option(
        "quota.records.per.second",
        kinds.RATE,
        "Record-rate quota; a read counts the offsets that it fetches. If both quotas are set, both apply.",
        where=Where.ALL,
        units="records/s",
    )
    quota_windows: int = option(
        "quota.windows",
        kinds.SAMPLES,
        "Number of samples, including the current one, over which the rate is averaged; the default is as in the "
        "brokers' `quota.window.num`.",
        default=11,
        where=Where.ALL,
        only=Only.QUOTA,
    )
    quota_window_ms: int = option(
        "quota.window.ms",
        kinds.COUNT,
        "Length of one sample; the default is as in the brokers' `quota.window.size.seconds`.",
        default=1000,
        where=Where.ALL,
        units="ms",
        only=Only.QUOTA,
    )
    quota_watch: str | None = option(
        "quota.watch",
        kinds.TEXT,
        "The place from which the running query reads changed quotas: a file on the driver, an http(s) URL, or "
        "`broker` for the brokers' quota of `kafka.client.id` (KIP-546). File and URL contain JSON such as "
        '{"bytes_per_second":1000000,"clients":{"my-client-id":{"enabled":false}}}.',
        where=Where.ALL,
    )
    quota_report: str | None = option(
        "quota.report",
        kinds.TEXT,
        "A file on the driver to which the stream writes the figures of its quota, for `kafkagroup quota show`.",
        where=Where.STREAM,
        only=Only.QUOTA,
    )

    def __repr__(self) -> str:
        # Values may be secrets: a token in a URL, the settings of the clients.
        given = [one.name for field, one in declared_in(type(self)).items() if getattr(self, field) != one.default]
        settings = (KAFKA_PREFIX + name for name in self.settings.given)
        return f"{type(self).__name__}({', '.join(sorted({*given, *settings}))})"
