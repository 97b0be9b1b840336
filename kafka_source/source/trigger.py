"""Plan one trigger of a stream: look facts up, decide (`decision`, `plan`), act. This module needs no Spark.

Spark's streams plan micro-batches with `Trigger` (`micro_batches`), and so does `kafkagroup.arrow.consume`.
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.commits.as_members import lost_place
from kafka_source.commits.policy import CommitPolicy
from kafka_source.engine_selection import check_engine
from kafka_source.errors import DataLossError
from kafka_source.group.model import OwnedPartitions, subscription_of
from kafka_source.group.siblings import Siblings
from kafka_source.model.commits import CommitOffset
from kafka_source.model.driver_figures import DriverFigures
from kafka_source.model.identity import check_same_cluster
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.produce.dead_letters import check_dead_letter_topic
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.quota.server import StreamQuota
from kafka_source.quota.task_figures import TaskFigures
from kafka_source.runtime.failpoints import failpoint
from kafka_source.source.attempts import Again, removed, repeat, unfinished
from kafka_source.source.group_member_owner import owner_of
from kafka_source.source.log_times import alignment_of
from kafka_source.source.plan import Admission, min_records_per_task, spans
from kafka_source.source.position_tracker import PositionTracker, Scope
from kafka_source.source.positions import Positions
from kafka_source.source.standstill import Standstill
from kafka_source.source.start_and_end import raise_or_warn
from kafka_source.source.topic_tracker import PartitionsWithoutLeader, TopicTracker
from kafka_source.transactions.offset_transaction import GroupOffsets

log = logging.getLogger(__name__)


class Trigger:
    """Plan the micro-batches of one stream.

    Args:
        options: The stream's options.
        policy: The stream's commit policy.
        siblings: The other reads of this driver and group; None: they cannot be found.
        schemas: For each column, the id of the schema to which values are resolved.
        static: Whether the stream's members are static, even if the user sets no instance id.
    """

    def __init__(
        self,
        options: ReadOptions,
        policy: CommitPolicy,
        siblings: Siblings | None = None,
        schemas: Mapping[str, int] | None = None,
        *,
        static: bool = True,
    ) -> None:
        self._options, self._policy = options, policy
        self._schemas = dict(schemas or {})
        check_engine(options.engine, options.settings)
        # A lookup does not wait for leaders, because the trigger reads the other partitions while it waits for leaders.
        self._cluster = Cluster.of(options, leader_seconds=0)
        self._leaderless = PartitionsWithoutLeader(options.coordinator_timeout_ms / 1000)
        self._selection = subscription_of(options)
        self._subscribed = subscribed = self._cluster.partitions(self._selection)
        check_dead_letter_topic(options, self._cluster, subscribed)
        self._positions = positions = Positions()
        positions.note_topics({}, self._cluster.cluster_id())
        self._owner = owner_of(
            options, policy, self._cluster, self._selection, len(subscribed), siblings, positions, static=static
        )
        self._topics = TopicTracker(
            TopicIds(self._cluster.topics, options.metadata_max_age_ms), fail_on_data_loss=options.fail_on_data_loss
        )
        self._resolver = PositionTracker(
            options, policy, self._cluster, self._owner, subscribed, positions, self._topics.are_replaced
        )
        # A limit in bytes needs the sizes of records, and a limit in time needs the times at which tasks end. Tasks
        # report the sizes, the times and the number of bad values, as with a quota.
        limits = (options.max_bytes_per_trigger, options.target_trigger_duration)
        measures = options.goes_on_after_bad_values or any(limit is not None for limit in limits)
        quota = QuotaSettings.measuring(options) if measures else QuotaSettings.of(options)
        self._quota = None if quota is None else StreamQuota(quota, options.settings)
        target = options.target_trigger_duration
        self._figures = TaskFigures(
            self._quota, counts_bad=options.goes_on_after_bad_values, target=None if target is None else target / 1000
        )
        self._admission = Admission(options, self._quota)
        self._alignment = alignment_of(options, self._cluster)
        self._standstill = Standstill(options, self._owner.offsets)
        self._owned = OwnedPartitions({})
        self._latest: dict[TopicPartition, int] = {}
        self._looked_up_ms = 0
        # The end offset that this process planned last. A batch with another end is a replay from the checkpoint.
        self._planned: StreamOffset | None = None
        self._selects_all_of_checkpoint = False

    def join(self) -> None:
        """Join the group, if there is one and the query has not joined yet; raises as `next`."""
        with self._owner.rebalance_paused():
            self._owner.join()

    def next(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Return the end offset of the next micro-batch; `start` itself if there is nothing to plan.

        Args:
            start: The end of the last batch; before a query's first batch, an offset without partitions.
            limited: Apply the options' limits and the quota.

        Raises:
            DataLossError: Records or topics were lost, and `failOnDataLoss` is set.
            FencedError: Another process has replaced this query in the group.
            InvalidConfigurationError: `start` is of another cluster.
        """
        # Called first, so that the measured time includes no rebalance.
        self._admission.trigger_started()
        self._check_cluster(start)
        self._learn(start)
        if self._policy.signs:
            self._positions.stream = self._positions.stream or uuid.uuid4().hex
        if not self._resolver.is_resolved:
            self._standstill.look()
            if self._standstill.keeps_out(start.ends):
                return start
        with self._owner.rebalance_paused():
            return repeat(lambda: self._attempt(start, limited=limited), self._leaderless, self._topics)

    def _attempt(self, start: StreamOffset, *, limited: bool) -> StreamOffset | Again:
        # Members may wait for a rebalance, during which metadata may change.
        with nullcontext() if self._options.is_member else self._cluster.metadata_snapshot():
            self._leaderless.update(self._cluster.without_leader)
            return self._plan(start, limited=limited)

    def _plan(self, start: StreamOffset, *, limited: bool) -> StreamOffset | Again:
        """Plan one trigger: the query's partitions, their positions, and their ends."""
        is_first = not self._resolver.is_resolved
        scope, unassigned = self._scope(start)
        # Look up the halt after the rebalance, because a partition's previous owner may have reported that it obeys the
        # halt.
        self._standstill.look()
        known, owned, leaderless = scope.start, scope.owned, scope.leaderless
        topic_ids = self._topics.ids({tp.topic for tp in scope.partitions})
        self._policy.keep_record(self._positions.stream, scope.partitions, topic_ids)
        settled = self._resolver.settle(scope)
        starts, latest = settled.starts, settled.latest
        if not start.partitions:
            self._topics.note_unread(starts)
        self._latest = {**{tp: offset for tp, offset in self._latest.items() if tp in leaderless}, **latest}
        self._looked_up_ms = round(time.time() * 1000)
        if not self._resolver.marks_steps_back:
            # Plan no records before the checkpoint has the step back: plans leave out records before the start offset.
            latest = latest | {tp: starts[tp] for tp in settled.stepped}
        if is_first and not self._commits_before_first(scope):
            # The commit was refused and the slots have rejoined, so other members may have read on.
            return removed("The slots have joined the group again since the positions were looked up.")
        if self._standstill.is_halted:
            members = {slot: self._owner.credentials(slot) for slot in owned.slots.values()}
            ids = {slot: one.member_id for slot, one in members.items() if one is not None}
            self._standstill.obey(starts, {tp: ids[slot] for tp, slot in owned.slots.items() if slot in ids})
        latest = self._standstill.limit(starts, latest)
        ends = self._ends(starts, latest, leaderless, limited=limited)
        has_new = ends != starts
        if not has_new and self._admission.runs_to_an_end:
            short = self._resolver.awaits_longer_logs
            again = unfinished(leaderless=leaderless, unassigned=unassigned, short_logs=short)
            if again is not None:
                return again
        has_records = any(span.end > span.start for span in start.partitions.values())
        if start == self._planned and has_records and known.partitions.keys() == start.partitions.keys():
            # Nothing is committed for topics that were deleted or created again since the batch was planned.
            self._policy.check_finished(start, self._owner.offsets.committed, has_new=has_new)
        is_durable = self._resolver.are_durable(known, starts) and not start.of_spark
        has_news = self._standstill.has_news(starts) or (self._policy.may_plan_empty and self._figures.has_bad_records)
        if not has_new and is_durable and not has_news:
            # An empty batch is planned in three cases: a restart would resolve other positions; an offset of Spark's
            # own source lacks the ids of cluster and topics; or the progress has to show bad records or a halt.
            return start
        if not self._owner.still_owned():
            # The driver was suspended while it planned, and other members may have read these records. An empty plan
            # would end a run with Trigger.AvailableNow.
            return removed("The group has removed the slots since the positions were looked up.")
        if self._policy.is_output and not start.by_sink:
            # Before the sink's first batch, the group may lack the query's positions, because another value of `commit`
            # may not have committed the last batch. From the first batch on, the group's offsets match the output.
            self._owner.offsets.remember(self._positions.missing(starts))
        if has_new:
            self._admission.batch_planned(sum(ends[tp] - start for tp, start in starts.items()))
        self._standstill.note_planned()
        self._planned = self._end_offset(starts, ends, owned, self._positions.end_epochs(starts, ends, settled.leaders))
        self._owner.batch_planned(starts, ends, {**starts, **latest})
        failpoint("batch-planned")
        return self._planned

    def _ends(
        self,
        starts: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        leaderless: Collection[TopicPartition],
        *,
        limited: bool,
    ) -> dict[TopicPartition, int]:
        """Return the ends of the partitions, within the limits and `maxTimestampSkew`."""
        may_wait = not self._standstill.is_halted
        admit = partial(self._admission.ends, starts, latest, limited=limited, may_wait=may_wait)
        if self._alignment is None:
            return admit()
        return self._alignment.ends(starts, self._admission.available(starts, latest), leaderless, admit)

    def _scope(self, start: StreamOffset) -> tuple[Scope, list[TopicPartition]]:
        """Commit the offsets before `start`, rejoin if a rebalance is due, and return the partitions to read.

        Returns:
            The scope, and the partitions that the group has not assigned yet, because their topics were created again.
        """
        known = self._without_lost_topics(start)
        if self._resolver.is_compared:
            # After a rebalance new owners of partitions start at the committed offsets.
            self._owner.commit(self._positions.current_ends(known))
        owned = self._owned = self._owner.rejoin_if_due()
        if not self._resolver.is_resolved_after(owned.joins):
            # The leader may have started the rebalance because topics have changed.
            self._topics.refresh()
            known = self._without_lost_topics(start)
        self._positions.note_topics(self._topics.ids({tp.topic for tp in owned.slots}), self._cluster.cluster_id())
        self._check_selection(known)
        self._resolver.compare_with_group(known)
        existing = self._topics.existing(owned.slots)
        assigned = self._current_slots(owned)
        partitions = [tp for tp in existing if tp in assigned]
        leaderless = self._leaderless.partitions & set(partitions)
        self._leaderless.check(leaderless)
        scope = Scope(known, owned, partitions, self._topics.lost_topics, leaderless)
        return scope, [tp for tp in existing if tp not in assigned]

    def _commits_before_first(self, scope: Scope) -> bool:
        """Commit offsets that the last commit before a restart may have missed; return whether the slots are unchanged.

        The first commit follows the comparison of the checkpoint with the group.
        """
        self._owner.commit(self._positions.current_ends(scope.start))
        return self._owner.rejoin_if_due().joins == scope.owned.joins

    def _current_slots(self, owned: OwnedPartitions) -> Mapping[TopicPartition, int]:
        """Return the slots of the assigned partitions, except in topics whose ids have changed since the assignment."""
        return owned.slots_of(self._topics.ids({tp.topic for tp in owned.slots}))

    def _end_offset(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        owned: OwnedPartitions,
        epochs: Mapping[TopicPartition, int],
    ) -> StreamOffset:
        return StreamOffset(
            spans(starts, ends, owned.slots, owned.copies),
            cluster=self._cluster.cluster_id(),
            generation=owned.generation,
            slots=owned.count,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            task_records=min_records_per_task(self._options),
            topics=self._topics.ids({tp.topic for tp in starts}),
            stream=self._positions.stream,
            rewinds=self._positions.rewinds(starts),
            by_sink=self._policy.is_output,
            schemas=self._schemas,
            epochs=epochs,
        )

    def rejoined(self) -> OwnedPartitions:
        """Rejoin if a rebalance is due, and return the stream's partitions of the current topics."""
        owned = self._owner.rejoin_if_due()
        return replace(owned, slots=self._current_slots(owned))

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's committed offsets; see `Offsets.committed`."""
        return self._owner.offsets.committed(partitions)

    def rewound(self, committed: Mapping[TopicPartition, CommitOffset]) -> Collection[TopicPartition]:
        """Return the partitions whose rewind the stream does not follow yet."""
        return self._positions.unfollowed_rewinds(committed)

    def commit(self, end: StreamOffset, *, has_looked: bool) -> None:
        """Commit everything before `end` now, whatever the commit policy is; see `Offsets.commit` for `has_looked`.

        Raises:
            FencedError: The group has removed this member or given a partition to another member; nothing is committed.
            UnknownTopicError: A topic was deleted, or the caller has not compared the topics; nothing is committed.
            KafkaGroupError: The commit has failed. `UnknownOutcomeError`: it may have succeeded.
        """
        self._check_cluster(end)
        self._learn(end)
        with self._owner.rebalance_paused():
            self._owner.offsets.commit(self._positions.current_ends(end), has_looked=has_looked)

    def offsets_of_member(self, end: StreamOffset) -> GroupOffsets:
        """Return the offsets, with this stream's member, for a transaction that commits everything before `end`.

        Raises:
            FencedError: The group has removed this member.
        """
        self._check_cluster(end)
        self._learn(end)
        with self._owner.rebalance_paused():
            member = self._owner.credentials(0)
            if member is None or not self._owner.still_owned():
                raise lost_place(self._options.group_id)
            return GroupOffsets(member, self._positions.with_notes(self._positions.current_ends(end)))

    def committed_after_failure(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets after a failed commit; a partition without an offset is left out.

        Wait for open transactions, and check that this process is still a member.
        """
        self._owner.ask()
        found = self._owner.offsets.committed(sorted(partitions))
        return {tp: entry.offset for tp, entry in found.items()}

    def rebalance_due(self) -> bool:
        """Return whether the next call of `next` rejoins the group.

        Raises:
            FencedError: Another process has replaced this stream in the group.
        """
        with self._owner.rebalance_paused():
            return self._owner.rebalance_due()

    @property
    def owned(self) -> OwnedPartitions:
        """The partitions that this stream owned in the last call of `next`."""
        return self._owned

    @property
    def has_stopped(self) -> bool:
        """Whether the group is stopped and this member may leave."""
        return self._standstill.has_stopped and self._owner.has_joined

    def has_reached_stop(self, read: StreamOffset) -> bool:
        """Return whether the group is stopped and the positions are at the boundaries, committed or not."""
        return self._standstill.ends(read.ends)

    def stop_at_latest(self) -> None:
        """Let an AvailableNow run end at the current latest offsets, in every partition of the subscription."""
        repeat(self._stop_at_latest, self._leaderless, self._topics)

    def _stop_at_latest(self) -> None:
        with self._cluster.metadata_snapshot():
            self._leaderless.update(self._cluster.without_leader)
            partitions = set(self._cluster.partitions(self._selection))
            leaderless = self._leaderless.partitions & partitions
            latest = self._cluster.latest(partitions - leaderless, read_committed=self._options.read_committed)
            self._admission.stop_at(latest, leaderless)

    def latest(self) -> dict[str, dict[str, int]]:
        """Return the latest offsets of the last lookup, by topic and partition, for the query's progress."""
        report: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self._latest.items()):
            report.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return report

    def figures(self, *, with_latest: bool) -> DriverFigures:
        """Return the commits, rebalances and bad records since the last call, for the query's progress.

        Args:
            with_latest: Whether to add the latest offsets, because this version of Spark does not show them.
        """
        events = self._owner.take_events()
        bad_records, cores_needed = self._figures.take()
        return DriverFigures(
            self._looked_up_ms,
            self._options.group_id if self._options.in_group else None,
            events.commits,
            events.failed_commits,
            events.rebalances,
            self._latest if with_latest else {},
            None if self._options.target_trigger_duration is None else self._admission.max_offsets,
            bad_records,
            cores_needed,
            None if self._alignment is None else self._alignment.figures,
            self._standstill.shown,
        )

    def quota(self) -> dict[str, Any] | None:
        """Return the used part of the quota, with rates and delays; None without a quota."""
        return None if self._quota is None else self._quota.figures()

    def close(self) -> None:
        """Leave the group, and end the quota's server."""
        if self._quota is not None:
            self._quota.close()
        if self.has_stopped:
            # Static members of a stopped query would stay in the group until their session ends.
            self._owner.leave()
        self._owner.close()

    def _check_cluster(self, offset: StreamOffset) -> None:
        check_same_cluster(
            offset.cluster,
            self._cluster.cluster_id(),
            servers=self._options.bootstrap_servers,
            moved_from=self._options.cluster_moved_from,
        )

    def _learn(self, offset: StreamOffset, *, newest: bool = False) -> None:
        """Record an offset's facts other than its ends; see `Positions.learn`."""
        self._positions.learn(offset.in_cluster(self._cluster.cluster_id()), newest=newest)

    def _without_lost_topics(self, offset: StreamOffset) -> StreamOffset:
        """Remove lost topics from an offset, and their offsets from the query's positions."""
        checked = self._topics.check(offset, self._cluster.cluster_id())
        if checked.newly_lost:
            self._positions.forget_topics(checked.newly_lost)
        self._positions.learn(checked.start)
        return checked.start

    def _check_selection(self, start: StreamOffset) -> None:
        """When the query starts, report partitions of the checkpoint that the query's options no longer select.

        Raises:
            DataLossError: The options no longer select a partition of the checkpoint, and `failOnDataLoss` is set. Or
                the options select no partition of the checkpoint, and `strict` is set.
        """
        if self._selects_all_of_checkpoint:
            return
        selected = set(self._subscribed)
        if self._options.strict and start.ends and selected.isdisjoint(start.ends):
            raise DataLossError.of_other_topics(sorted({tp.topic for tp in start.ends}), selection=str(self._selection))
        for tp, position in sorted(start.ends.items()):
            if tp not in selected:
                raise_or_warn(self._options, DataLossError.of_unsubscribed(tp, planned=position))
        self._selects_all_of_checkpoint = True
