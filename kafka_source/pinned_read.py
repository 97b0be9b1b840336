"""A batch read with pinned ranges: all actions see the same rows, which are committed at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.commits.choose import Caller, policy_of
from kafka_source.datasource import FORMAT, KafkaGroupSource
from kafka_source.engine_selection import check_engine, engine_of_tasks
from kafka_source.errors import FencedError, OptionError
from kafka_source.group.model import group_settings, subscription_of
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.options.declaration import Only, declared_in
from kafka_source.source.group_member_owner import GroupMemberOwner
from kafka_source.source.positions import Positions
from kafka_source.source.start_and_end import commit_existing, resolve_batch

# A block may take as long as a batch. During a rebalance, the group's other members wait for the block's end.
_REBALANCE_TIMEOUT_MS = 1_800_000

_MEMBERSHIP = "group.membership"

# The options that the pinned ranges replace, and the options of members, in lower case.
_RESOLVED = frozenset(
    one.name.lower()
    for field, one in declared_in(ReadOptions).items()
    if field in ("subscribe", "subscribe_pattern", "commit")
    or field.startswith(("starting_", "ending_"))
    or one.only in (Only.GROUP, Only.MEMBERS, Only.CLASSIC, Only.COMMITS, Only.REDUNDANT)
)


@contextmanager
def pinned(spark: SparkSession, options: Mapping[str, str], schema: str | None = None) -> Iterator[DataFrame]:
    """Read the new records of a consumer group, and commit them if the block ends without an error.

        with kafkagroup.pinned(spark, {"kafka.group.id": "nightly", ...}) as orders:
            orders.write.parquet(...)
            print(orders.count())  # the same rows, whatever has arrived since

    This process joins the group and keeps its slots alive with heartbeats while the block runs. If an exception leaves
    the block, nothing is committed. After the block the DataFrame still has the same rows.

    Args:
        spark: The session that reads; it must know the format.
        options: The options of a batch read; `kafka.group.id` is required.
        schema: The columns, as in `spark.read.schema`; None: all.

    Yields:
        The rows from the group's positions to the ends that the partitions had when the block began; perhaps none.

    Raises:
        OptionError: An option is wrong.
        DataLossError: Records were lost and `failOnDataLoss` is set; also at the end, if a topic was deleted or created
            again in the block. Nothing is committed; with `failOnDataLoss=false` the other topics are committed.
        FencedError: The group has removed or replaced the slots; raised at the end. Nothing is committed, and other
            members read the block's records again.
        KafkaGroupError: Joining, or committing, failed.
    """
    with pinned_ranges(options) as ranges:
        yield _frame(spark, options, schema, ranges)


@contextmanager
def pinned_ranges(options: Mapping[str, str]) -> Iterator[tuple[Range, ...]]:
    """Yield the ranges that `pinned` reads, and commit their ends if the block succeeds; arguments as for `pinned`."""
    parsed = _read_options(options)
    check_engine(engine_of_tasks(parsed.engine), parsed.settings)
    subscription = subscription_of(parsed)
    with ExitStack() as ending:
        with closing(Cluster.of(parsed)) as cluster:
            subscribed = cluster.partitions(subscription)
            group = group_settings(parsed, partitions=len(subscribed), stream=True)
            if parsed.max_poll_interval_ms is None:
                group = replace(group, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS)
            positions = Positions()
            owner = GroupMemberOwner(parsed, policy_of(parsed, Caller.BLOCK), subscription, group, positions=positions)
            members = ending.enter_context(closing(owner))
            ids, ranges = _ranges(cluster, parsed, members, subscribed)
            # The commits have the records' leader epochs and the topic ids.
            read = StreamOffset(
                {r.topic_partition: Span(r.start, r.end, 0) for r in ranges},
                topics=ids,
                epochs={r.topic_partition: r.epoch for r in ranges},
            )
            positions.learn(read)
            committed = members.offsets.committed([r.topic_partition for r in ranges])
            positions.note_rewinds(positions.unfollowed_rewinds(committed))
        yield ranges
        if read.partitions:
            with closing(Cluster.of(parsed)) as cluster:
                commit_existing(parsed, cluster, read, partial(_commit, members, group.group))


def _read_options(given: Mapping[str, str]) -> ReadOptions:
    commit = next((name for name in given if name.lower() == "commit"), None)
    if commit is not None and given[commit].strip().lower() != "batch":
        raise OptionError("commit", given[commit], "batch or no value here: the whole read is committed at the end")
    kept = {name: value for name, value in given.items() if name != commit}
    names = {name.lower() for name in kept}
    if "kafka.group.id" in names and _MEMBERSHIP not in names:
        # `pinned` implies membership.
        kept[_MEMBERSHIP] = "true"
    options = read_options(kept, Where.BATCH)
    if not options.in_group:
        raise OptionError("kafka.group.id", None, "the group that commits; leave out group.membership=false")
    if not options.is_member:
        raise OptionError("assign", given.get("assign"), "no value in a pinned read, whose members share the topics")
    return options


def _ranges(
    cluster: Cluster, options: ReadOptions, members: GroupMemberOwner, subscribed: list[TopicPartition]
) -> tuple[dict[str, str], tuple[Range, ...]]:
    """Return the topic ids, and those new ranges of the slots' partitions that are not empty."""
    owned = sorted(members.rejoin_if_due().slots)
    # All actions have to read the same rows, so every start must be valid before the tasks begin.
    with cluster.metadata_snapshot():
        ids = TopicIds(cluster.topics, 0).ids({tp.topic for tp in owned})
        members.offsets.note_topics(ids, cluster.cluster_id())
        bounds = resolve_batch(cluster, options, members, owned, subscribed=subscribed, check_all=True)
    ranges = [Range(*tp, bounds.starts[tp], bounds.ends[tp], epoch=bounds.epochs.get(tp, -1)) for tp in owned]
    return ids, tuple(r for r in ranges if r.size)


def _frame(spark: SparkSession, given: Mapping[str, str], schema: str | None, ranges: tuple[Range, ...]) -> DataFrame:
    if not ranges:
        return spark.createDataFrame([], schema or KafkaGroupSource(dict(given)).schema())
    reader = spark.read.format(FORMAT).options(**exact_options(given, ranges))
    return (reader if schema is None else reader.schema(schema)).load()


def exact_options(given: Mapping[str, str], ranges: tuple[Range, ...]) -> dict[str, str]:
    """Return the options with which a batch reads exactly these ranges; `given` has all other options."""
    by_topic: dict[str, list[Range]] = {}
    for one in ranges:
        by_topic.setdefault(one.topic, []).append(one)
    exactly = {
        # The group's id stays as a label; the members are in this process.
        _MEMBERSHIP: "false",
        "assign": json.dumps({topic: [r.partition for r in of_it] for topic, of_it in by_topic.items()}),
        "startingOffsets": json.dumps(
            {topic: {r.partition: r.start for r in of_it} for topic, of_it in by_topic.items()}
        ),
        "endingOffsets": json.dumps({topic: {r.partition: r.end for r in of_it} for topic, of_it in by_topic.items()}),
    }
    kept = {name: value for name, value in given.items() if name.lower() not in _RESOLVED}
    return {**kept, **exactly}


def _commit(members: GroupMemberOwner, group: str, read: StreamOffset, *, has_looked: bool) -> None:
    try:
        members.offsets.commit(read.ends, has_looked=has_looked)
    except FencedError as error:
        raise FencedError(
            f"Nothing of this block was committed: group {group} has removed its members, because the "
            "block took longer than the group waits (kafka.max.poll.interval.ms, kafka.session.timeout.ms), or another "
            f"process uses the same kafka.group.instance.id. Other members read these records again. ({error})",
            code=error.code,
        ) from None
