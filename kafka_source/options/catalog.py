"""The options of the format, with their defaults, and the settings of Kafka that are refused.

A field has the option's name in snake case, without the prefix `kafka.`. None means that the option was not given.
Options of Spark and Kafka keep their names; kafkagroup's own names are lower case with dots.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which holds no mutable default.

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_source.model.identity import MOVED_FROM
from kafka_source.options import kinds
from kafka_source.options.declaration import Only, Option, Where, declared_in, option
from kafka_source.options.kinds import (
    Commit,
    DecodedColumn,
    Emit,
    EndingWord,
    GroupOnLost,
    GroupOnOlderCheckpoint,
    GroupProtocol,
    IsolationLevel,
    Mode,
    PartitionValues,
    SchemaEvolution,
    StartingValues,
    StartingWord,
    TimestampStrategy,
    TransactionalOnLost,
    ValueFormat,
    ValueFraming,
)
from kafka_source.options.values import ValueOptions

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadOptions(ValueOptions):
    """Options of batch and stream reads."""

    # What to read
    subscribe: tuple[str, ...] | None = option(
        "subscribe",
        kinds.TOPICS,
        "Subscribe to these topics. Give exactly one of `subscribe`, `subscribePattern` and `assign`.",
    )
    subscribe_pattern: str | None = option(
        "subscribePattern",
        kinds.TOPIC_PATTERN,
        "Subscribe to every topic whose name contains a match, as in Spark: `orders` also matches `my-orders`, "
        "`^orders$` does not. Internal topics never match. The query fails if matching a name takes longer than 5 s.",
    )
    assign: dict[str, tuple[int, ...]] | None = option(
        "assign",
        kinds.PARTITIONS,
        "Read exactly these partitions. With `kafka.group.id` the query starts at the group's committed offsets and "
        "commits to the group without membership; the group must have no members.",
    )

    include_headers: bool = option(
        "includeHeaders",
        kinds.BOOLEAN,
        "Add the column `headers` to the rows. A sink needs no option to write a column `headers`.",
        default=False,
    )

    # A function in the read task
    map_function: str | None = option(
        "map.function",
        kinds.TEXT_OR_NONE,
        "`module:function`, decorated by `kafkagroup.arrow_function`. The function runs in the read tasks, and makes "
        "rows from the record batches that the other options select. `kafkagroup.map_in_arrow` sets this option to a "
        "pickled function of your program. [A function in the read task](guides/map-in-arrow.md).",
    )
    map_schema: str | None = option(
        "map.schema",
        kinds.TEXT_OR_NONE,
        "The columns that `map.function` makes, in the syntax of `.schema(…)`: `id bigint, name string`. Not needed "
        "with `.schema(…)`.",
    )
    map_columns: tuple[str, ...] | None = option(
        "map.columns",
        kinds.MAP_COLUMNS,
        "The columns that `map.function` gets.",
        default_text="all columns of the read",
    )

    # Values that cannot be decoded
    avro_schema_evolution_mode: SchemaEvolution = option(
        "avroSchemaEvolutionMode",
        kinds.SCHEMA_EVOLUTION,
        "Reaction of a stream to a newer schema of the subject (Avro, Protobuf, JSON Schema), as in Databricks' "
        "`from_avro`. `none`: the stream keeps its columns. `restart`: the stream stops before the first rows with "
        "the newer schema, and has the new columns after its next start.",
        default="none",
        where=Where.STREAM,
    )
    recursive_field_max_depth: int | None = option(
        "recursiveFieldMaxDepth",
        kinds.RECURSION,
        "How often an Avro record or Protobuf message may contain itself, as in Spark's `from_avro`: 1 omits the "
        "inner record, 2 keeps one inner record.",
        default_text="the inner record is a string with its JSON",
    )
    mode: Mode = option(
        "mode",
        kinds.MODE,
        "Handling of an Avro, Protobuf or JSON value or key that cannot be decoded: `FAILFAST` (an error with the "
        "topic-partition and the offset), `PERMISSIVE` (a null, and the bytes in `columnNameOfCorruptRecord`) or "
        "`DROPMALFORMED` (no row). A record without a value is null in every mode.",
        default="FAILFAST",
    )
    column_name_of_corrupt_record: str = option(
        "columnNameOfCorruptRecord",
        kinds.TEXT,
        "With `mode=PERMISSIVE`: the binary column with the bytes of bad values. Bytes of bad keys are in a second "
        "column, whose name has the suffix `_key`.",
        default="_corrupt_record",
    )
    deadletter_topic: str | None = option(
        "deadletter.topic",
        kinds.TEXT,
        "With `mode=PERMISSIVE` or `DROPMALFORMED`: the topic to which [dead "
        "letters](guides/bad-records.md#dead-letters) are written, in the same cluster. A dead letter is a record "
        "with a bad value or key, plus headers for its origin and error. Each run of a task, and so each action of a "
        "batch, writes its dead letters again.",
    )

    # Where to start and end
    starting_offsets: StartingWord | StartingValues | None = option(
        "startingOffsets",
        kinds.STARTING_OFFSETS,
        "The start of a query without a checkpoint. A query in a group uses this option only for partitions without a "
        "committed offset. In JSON, -2 means earliest and -1 means latest. `committed`: the group's committed offset, "
        "or earliest if there is none. In JSON, a topic may have `earliest` or `latest` instead of its partitions: "
        "[topics that start elsewhere](reading.md#topics-that-start-elsewhere).",
        default_text="latest for streams, earliest for batches",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        kinds.TIMESTAMP,
        "Start every partition at its first record with this timestamp or later. Takes precedence over "
        "`startingOffsetsByTimestamp` and `startingOffsets`.",
        units="ms since 1970",
    )
    starting_offsets_by_timestamp: PartitionValues | None = option(
        "startingOffsetsByTimestamp",
        kinds.TIMESTAMPS,
        "Start each partition at its first record with the partition's timestamp or later. Takes precedence over "
        "`startingOffsets`.",
        units="ms since 1970",
    )
    starting_offsets_by_timestamp_strategy: TimestampStrategy = option(
        "startingOffsetsByTimestampStrategy",
        kinds.TIMESTAMP_STRATEGY,
        "If a partition has no record with the starting timestamp or later: `error` fails the query, `latest` starts "
        "at the latest offset. With `read_committed` only records up to the last stable offset count.",
        default="error",
        only=Only.TIMESTAMPS,
    )
    ending_offsets: EndingWord | PartitionValues = option(
        "endingOffsets",
        kinds.ENDING_OFFSETS,
        "Where a batch ends, exclusive. In JSON, -1 means latest.",
        default="latest",
        where=Where.BATCH,
        not_in_streams="ending offset not valid in streaming queries",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        kinds.TIMESTAMP,
        "Stop before the first record with this timestamp or later. If a partition has no such record, stop at its "
        "latest offset. Takes precedence over `endingOffsetsByTimestamp` and `endingOffsets`.",
        where=Where.BATCH,
        units="ms since 1970",
    )
    ending_offsets_by_timestamp: PartitionValues | None = option(
        "endingOffsetsByTimestamp",
        kinds.TIMESTAMPS,
        "Stop before each partition's first record with the partition's timestamp or later. If a partition has no "
        "such record, stop at its latest offset. Takes precedence over `endingOffsets`.",
        where=Where.BATCH,
        not_in_streams="ending timestamp not valid in streaming queries",
        units="ms since 1970",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        kinds.BOOLEAN,
        "Fail the query when planned offsets no longer exist (retention, deleted topic); if false, warn and continue "
        "with the next available offset.",
        default=True,
    )
    data_loss_patience_ms: int = option(
        "data.loss.patience.ms",
        kinds.MILLISECONDS,
        "If a log ends before offsets that were read or planned, or a topic is unknown, the query waits this long, "
        "and then reports a [loss](reading.md#data-loss). A task waits at most `kafkaConsumer.pollTimeoutMs`. A loss "
        "is reported immediately if leader epochs prove it, or if the offset has no epoch.",
        default=30_000,
        units="ms",
    )
    cluster_moved_from: str | None = option(
        MOVED_FROM,
        kinds.TEXT,
        "The cluster id in the checkpoint. Set this option if the topics were migrated with their offsets to the "
        "cluster of `kafka.bootstrap.servers`. Otherwise a query that reaches a different cluster fails.",
    )

    # The consumer group
    group_id: str | None = option(
        "kafka.group.id",
        kinds.TEXT,
        "Join this consumer group: start at its committed offsets and share the partitions with its other members. "
        "Without a group, the query reads all partitions and commits nothing.",
    )
    group_membership: bool | None = option(
        "group.membership",
        kinds.BOOLEAN,
        "`true`: join the group, or with `assign` only commit its offsets. `false`: `kafka.group.id` is only a label, "
        "as in Spark's own source. An explicit `true` lowers the warnings about other members and committed offsets to "
        "INFO.",
        default_text="true",
        only=Only.GROUP,
    )
    group_instance_id: str | None = option(
        "kafka.group.instance.id",
        kinds.TEXT,
        "Prefix of the instance ids: slot k is the static member `{prefix}-{k}`. With a prefix that is unique to the "
        "application, a stream can restart within `kafka.session.timeout.ms` without a rebalance.",
        default_text="generated: the members leave the group when the query stops",
        only=Only.MEMBERS,
    )
    group_members: int | None = option(
        "group.members",
        kinds.COUNT,
        "Number of the query's group members (slots). A slot with many records is one Spark input partition; slots "
        "with few records share an input partition (`min.records.per.task`). With more slots, more tasks read in "
        "parallel.",
        default_text="the number of partitions, at most 8",
        only=Only.MEMBERS,
    )
    group_protocol: GroupProtocol = option(
        "kafka.group.protocol",
        kinds.GROUP_PROTOCOL,
        "`classic`: a member of the group assigns the partitions, by `kafka.partition.assignment.strategy`, and a "
        "rebalance waits for all members' micro-batches. `consumer` (KIP-848, brokers from 4.0), for streams without "
        "`commit=task`: the brokers assign the partitions, and a micro-batch delays only the next owner of its "
        "partitions.",
        default="classic",
        only=Only.MEMBERS,
    )
    group_remote_assignor: str | None = option(
        "kafka.group.remote.assignor",
        kinds.TEXT,
        "With `kafka.group.protocol=consumer`: the assignor, one of the brokers' `group.consumer.assignors`.",
        default_text="the brokers' first assignor, `uniform`",
        only=Only.MEMBERS,
    )
    partition_assignment_strategy: tuple[str, ...] = option(
        "kafka.partition.assignment.strategy",
        kinds.ASSIGNORS,
        "Assignors in order of preference; the group uses the first assignor that all members support. The class names "
        "of Kafka's assignors are accepted.",
        default=("range",),
        only=Only.CLASSIC,
    )
    assignor_options: dict[str, dict[str, object]] | None = option(
        "assignor.options",
        kinds.ASSIGNOR_OPTIONS,
        "Arguments of the assignors, by the assignor's name.",
        default_text="the defaults of each assignor",
        only=Only.CLASSIC,
    )
    redundant_copies: int | None = option(
        "redundant.copies",
        kinds.COUNT,
        "The number of members that each partition is assigned to.",
        default_text="2",
        only=Only.REDUNDANT,
    )
    redundant_emit: Emit = option(
        "redundant.emit",
        kinds.EMIT,
        "`primary`: the group reads each record once, and standbys wait. `all`: every copy emits rows, with the copy's "
        "number in the column `replica`, and each query keeps its positions in its checkpoint only.",
        default="primary",
        where=Where.STREAM,
        only=Only.REDUNDANT,
    )
    commit: Commit | None = option(
        "commit",
        kinds.COMMIT,
        "The committer of the group's offsets: `batch` (the driver, after each micro-batch), `task` (each task, at the "
        "end of its ranges), `sink` (the exactly-once sink with `commit.group`) or, in a batch only, `none`. With "
        "`sink`, a query with another sink stops before its second micro-batch. For a stream without commits, set "
        "`group.membership=false`. In a batch, `task` reads at most once. `kafkagroup.pinned` reads at least once.",
        default_text="batch for streams, none for batches",
    )
    commit_transactional: bool | None = option(
        "commit.transactional",
        kinds.BOOLEAN,
        "Commit offsets in a transaction, so that a fenced driver or task cannot commit. By default a query without "
        "rights on transactional ids, or without a transaction coordinator for 30 seconds, warns once and commits as a "
        "Java consumer does. With `true`, a query without these rights stops; without a coordinator, it stops after "
        "`coordinator.timeout.ms`. `false` uses no transactions.",
        default_text="true; false where transactions are impossible",
        only=Only.COMMITS,
    )
    group_on_lost: GroupOnLost = option(
        "group.on.lost",
        kinds.GROUP_ON_LOST,
        "Reaction if the coordinator has removed this query's members, for example because the driver was suspended. "
        "`stop`: an error. `rejoin`: join again, and commit the partitions of the interrupted micro-batch, except "
        "those that another member owns or has committed. With `commit=task` and `commit=sink`, `rejoin` ends the "
        "query if another member owns or has committed a partition of the interrupted micro-batch; the next start "
        "continues at the group's offsets.",
        default="rejoin",
        where=Where.STREAM,
        only=Only.MEMBERS,
    )
    group_on_older_checkpoint: GroupOnOlderCheckpoint = option(
        "group.on.older.checkpoint",
        kinds.GROUP_ON_OLDER_CHECKPOINT,
        "Reaction to a checkpoint that is older than this query's commits, because an older copy was restored. "
        "`stop`: an error, before the first read or commit. `follow`: continue at the group's offsets, if the output "
        "still has the later batches. `replay`: continue at the checkpoint and rewind the group's offsets, if the "
        "output was restored too: [an older checkpoint](reading.md#an-older-checkpoint).",
        default="stop",
        where=Where.STREAM,
        only=Only.COMMITS,
    )
    session_timeout_ms: int | None = option(
        "kafka.session.timeout.ms",
        kinds.COUNT,
        "The coordinator removes a member that has sent no heartbeat for this long. In a batch, slots may send their "
        "first heartbeat only when Spark starts their tasks.",
        default_text="45000 for streams, 300000 for batches",
        units="ms",
        only=Only.CLASSIC,
    )
    heartbeat_interval_ms: int = option(
        "kafka.heartbeat.interval.ms",
        kinds.COUNT,
        "Time between two heartbeats of a member; keep it below a third of `kafka.session.timeout.ms`.",
        default=3000,
        units="ms",
        only=Only.CLASSIC,
    )
    coordinator_timeout_ms: int = option(
        "coordinator.timeout.ms",
        kinds.COUNT,
        "How long a query waits for a group coordinator that is unreachable or loads the group, and for a partition "
        "without a leader. Set a longer time than a broker's restart takes. If the coordinator does not answer, a "
        "stream's task reads without a check of its membership, except with `commit=task`.",
        default=300_000,
        units="ms",
    )
    max_poll_interval_ms: int | None = option(
        "kafka.max.poll.interval.ms",
        kinds.COUNT,
        "How long a stream may take until it requests its next micro-batch. A rebalance waits at most this time for "
        "the stream's members. After this time, the members leave if the group has other members. Set a longer time "
        "than the trigger's interval, and than each micro-batch. In a batch with `commit=task`: how long slots wait "
        "for a task to begin or end.",
        default_text="300000 for streams, 1800000 for batches",
        units="ms",
        only=Only.MEMBERS,
    )
    rebalance_batch_ms: int = option(
        "rebalance.batch.ms",
        kinds.MILLISECONDS,
        "How long the group's leader collects topic changes before it triggers a rebalance. Raise this time if many "
        "topics are created together.",
        default=2000,
        units="ms",
        only=Only.CLASSIC,
    )
    metadata_max_age_ms: int = option(
        "kafka.metadata.max.age.ms",
        kinds.COUNT,
        "How often the driver looks up new topics and partitions. Kafka's default is five minutes.",
        default=10_000,
        units="ms",
    )
    group_id_prefix: str = option(
        "groupIdPrefix",
        kinds.TEXT,
        "The setting `group.id` of librdkafka's consumers, which join no group.",
        default="spark-kafka-source",
        only=Only.NO_GROUP,
    )

    # How to read
    batch_rows: int = option(
        "batch.rows",
        kinds.ARROW_ROWS,
        "Maximum number of rows in an Arrow record batch. Set less if rows are large and executors run out of memory.",
        default=65_536,
        units="rows",
    )
    batch_bytes: int = option(
        "batch.bytes",
        kinds.ARROW_BYTES,
        "Approximate maximum size of an Arrow record batch; `batch.rows` limits a batch too. A larger row is a batch "
        "of its own. Batches of 4 MiB or more are slower, because the system allocates new memory for each batch.",
        default=2 * MIB,
        units="bytes",
    )
    max_decoded_bytes: int = option(
        "max.decoded.bytes",
        kinds.DECODED_BYTES,
        "Maximum size of one decoded value in Arrow's layout; a larger value is a bad value (`mode`). The limit "
        "protects executors from values that are much larger decoded than encoded.",
        default=kinds.DEFAULT_DECODED_BYTES,
        units="bytes",
        only=Only.FORMAT,
    )
    kafka_consumer_poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        kinds.COUNT,
        "How long a task waits for planned records before it fails. Set a longer time than the cluster needs to "
        "replace a lost broker.",
        default=120_000,
        units="ms",
    )
    fetch_offset_num_retries: int = option(
        "fetchOffset.numRetries",
        kinds.RETRIES,
        "Minimum number of retries of the driver's metadata and offset requests. Retries continue at least until the "
        "request timeout.",
        default=3,
    )
    fetch_offset_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs",
        kinds.MILLISECONDS,
        "Pause before the first retry of `fetchOffset.numRetries`, doubled for each retry, up to one second.",
        default=10,
        units="ms",
    )
    min_partitions: int | None = option(
        "minPartitions",
        kinds.MIN_PARTITIONS,
        "Split large offset ranges into at least this many input partitions. Not possible with `commit=task`.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        kinds.MAX_RECORDS_PER_PARTITION,
        "Split offset ranges with more offsets than this into several input partitions. Not possible with "
        "`commit=task`.",
        units="records",
    )
    min_records_per_task: int | None = option(
        "min.records.per.task",
        kinds.COUNT,
        "Slots with fewer records than this in a micro-batch share one task, because a task costs more than a read of "
        "a few records; without a group, topic partitions share a task. Set 1 if the work on each record is heavy.",
        default_text="1000; 1 with minPartitions or maxRecordsPerPartition",
        where=Where.STREAM,
        units="records",
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        kinds.OFFSETS,
        "Maximum number of offsets in a micro-batch, divided among the partitions in proportion to their lag. 0 reads "
        "nothing.",
        where=Where.STREAM,
        units="offsets",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        kinds.BYTES,
        "Approximate maximum size of a micro-batch, in compressed bytes. Until tasks have measured records, an offset "
        "counts as 64 KiB, so the first micro-batch is small. Each partition with new offsets gets at least one "
        "offset. The smallest limit applies.",
        where=Where.STREAM,
        units="bytes",
    )
    target_trigger_duration: int | None = option(
        "targetTriggerDuration",
        kinds.POSITIVE_DURATION,
        "The target duration of a trigger while the query has lag. The duration of a micro-batch determines the size "
        "of the next micro-batch: [tuning](tuning.md#the-size-of-micro-batches). `maxOffsetsPerTrigger`, "
        "`maxBytesPerTrigger` and a quota remain upper limits; `minOffsetsPerTrigger` remains a lower limit.",
        where=Where.STREAM,
    )
    max_timestamp_skew: int | None = option(
        "maxTimestampSkew",
        kinds.POSITIVE_DURATION,
        "If a limit cuts a micro-batch, each partition is read at most up to the earliest unread timestamp of all "
        "partitions plus this time. So a watermark with at least this delay drops no rows of partitions that are "
        "behind: [late rows](guides/late-rows.md).",
        where=Where.STREAM,
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        kinds.OFFSETS,
        "Delay a micro-batch until this many new offsets are available, or `maxTriggerDelay` has passed.",
        where=Where.STREAM,
        units="offsets",
    )
    max_trigger_delay: int = option(
        "maxTriggerDelay",
        kinds.DURATION,
        "Maximum delay of a micro-batch by `minOffsetsPerTrigger`.",
        default=900_000,
        default_text="15m",
        where=Where.STREAM,
        only=Only.MIN_OFFSETS,
    )
    isolation_level: IsolationLevel | None = option(
        "kafka.isolation.level",
        kinds.ISOLATION_LEVEL,
        "`read_committed` returns only records of committed transactions, up to the last stable offset. "
        "`read_uncommitted` returns all records, up to the high watermark. To write exactly once, set "
        "`read_committed`.",
        default_text="read_uncommitted; with commit=sink read_committed",
    )

    @property
    def in_group(self) -> bool:
        """Whether the query starts at a group's committed offsets, as a member or with `assign`."""
        return self.group_id is not None and self.group_membership is not False

    @property
    def is_member(self) -> bool:
        """Whether the query is a member of a consumer group."""
        return self.in_group and self.assign is None

    def default_framing(self, value_format: ValueFormat, schema: str | None) -> ValueFraming:
        """Return a column's framing if its options do not name a framing."""
        # JSON values mostly have no schema id if an option names their columns.
        return "none" if value_format == "json" and schema is not None else "confluent"

    @property
    def goes_on_after_bad_values(self) -> bool:
        """Whether the query counts records with values that cannot be decoded, and continues."""
        return bool(self.decoded) and self.mode != "FAILFAST"

    def corrupt_column(self, column: DecodedColumn) -> str:
        """Return the name of the column that has the bytes of bad values, or of bad keys, with `mode=PERMISSIVE`."""
        name = self.column_name_of_corrupt_record
        return name if column == "value" else f"{name}_{column}"

    @property
    def read_committed(self) -> bool:
        """Whether the query reads up to the last stable offset, without records of aborted transactions."""
        if self.isolation_level is None:
            return self.commit == "sink"
        return self.isolation_level == "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkOptions(ValueOptions):
    """Options of batch and stream writes."""

    topic: str | None = option(
        "topic",
        kinds.TEXT,
        "The topic to write to; takes precedence over a `topic` column. Required if the rows have no column `topic`.",
        where=Where.SINK,
    )
    transactional: bool = option(
        "transactional",
        kinds.BOOLEAN,
        "Write exactly once, by two-phase commit over Kafka transactions: `read_committed` consumers get a batch's "
        "records when all its tasks are done. If false, writes are at least once.",
        default=False,
        where=Where.SINK,
    )
    transactional_id_prefix: str | None = option(
        "transactional.id.prefix",
        kinds.TEXT,
        "Prefix of the query's transactional ids. Keep the prefix over restarts, and use it in no other query, because "
        "two queries with one prefix fence each other.",
        where=Where.SINK,
    )
    transactional_on_lost: TransactionalOnLost | None = option(
        "transactional.on.lost",
        kinds.TRANSACTIONAL_ON_LOST,
        "Reaction if transactions of a decided batch exceeded `kafka.transaction.timeout.ms` while no driver ran. "
        "`stop`: an error that names the transactions. `replay`: write the batch again, if each task gets the same "
        "rows; the sink compares row counts.",
        default_text="stop",
        where=Where.SINK,
    )
    commit_group: str | None = option(
        "commit.group",
        kinds.TEXT,
        "In a stream with `transactional=true`: the `kafka.group.id` of the query's source, which has `commit=sink`. "
        "The transaction that decides the batch commits the group's offsets.",
        where=Where.SINK,
    )
    auto_register_schemas: bool = option(
        "auto.register.schemas",
        kinds.BOOLEAN,
        "Register the schema before a batch is written: `value.schema` or, without this option, the column's schema. "
        "For `avro` the column's schema is that of Spark's `to_avro`. `protobuf` needs `value.schema`. If false, the "
        "registry must have the schema.",
        default=False,
        where=Where.SINK,
    )


OPTIONS: tuple[Option, ...] = tuple(
    dict.fromkeys((*declared_in(ReadOptions).values(), *declared_in(SinkOptions).values()))
)
"""Every option."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A setting of Kafka that would break a guarantee of the connector.

    Attributes:
        where: The queries that refuse the setting. Other queries ignore the setting, as Kafka's clients do.
        spark: Spark's error text.
        instead: The replacement.
    """

    where: Where
    spark: str
    instead: str


REFUSED: Mapping[str, Refused] = {
    "kafka.auto.offset.reset": Refused(
        Where.READ, "Kafka option 'auto.offset.reset' is not supported", "use startingOffsets"
    ),
    "kafka.key.deserializer": Refused(
        Where.READ,
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
        "ByteArrayDeserializer",
        "keys are binary; cast the column",
    ),
    "kafka.value.deserializer": Refused(
        Where.READ,
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
        "ByteArrayDeserializer",
        "values are binary; cast the column, or set value.format",
    ),
    "kafka.enable.auto.commit": Refused(
        Where.READ, "Kafka option 'enable.auto.commit' is not supported", "use commit=batch or task"
    ),
    "kafka.interceptor.classes": Refused(
        Where.ALL, "Kafka option 'interceptor.classes' is not supported", "interceptors are Java classes"
    ),
    "kafka.key.serializer": Refused(
        Where.SINK,
        "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer",
        "keys are binary or string; cast the column",
    ),
    "kafka.value.serializer": Refused(
        Where.SINK,
        "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer",
        "values are binary or string; cast the column, or set value.format",
    ),
}
"""Settings of Kafka that would break a guarantee of the connector, with their replacements."""
