"""`Groups`: list, describe, rewind, create, clone, export, import and delete groups."""

import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import leader_epochs
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.halts import fetch_halt, fetch_idle
from kafka_source.commits.side_groups import HALT, private_groups
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, InvalidConfigurationError, UnknownGroupError
from kafka_source.group.classic import strategies
from kafka_source.group.requests import commit_offsets, fetch_all_committed, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.close_names import did_you_mean
from kafka_source.model.commits import CommitOffset, with_notes, without_topic
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.rewind_target import AtOffsets, Move, Target, other_group
from kafka_source.model.topic_selection import TopicSelection
from kafkagroup.admin.group_requests import (
    delete_group,
    delete_offsets,
    describe_group,
    is_consumer_group,
    list_groups,
    unknown_group,
)
from kafkagroup.admin.lag import GroupPositions, lag_of, moves_now, positions_of, rates_of
from kafkagroup.admin.offsets_document import OffsetsDocument, check_place
from kafkagroup.admin.rows import Group, GroupSummary, MemberDescription, PartitionLag, Rows

__all__ = ["Group", "Groups", "MemberDescription", "PartitionLag"]

_T = TypeVar("_T")
_CALL_SECONDS = 15.0
_LOOK_UP_SECONDS = 3.0


class Groups:
    """Describes and changes the consumer groups of a cluster. Each call opens and closes its own connections.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    # ---- describe

    def list(
        self,
        *,
        lag: bool = False,
        types: Collection[str] = (),
        states: Collection[str] = (),
        pattern: str | None = None,
        private: bool = False,
    ) -> Rows[GroupSummary]:
        """Return the groups that this user may describe, of every type, sorted by group id.

        Args:
            lag: Whether to return the number of members and the lag of consumer groups too; this takes more requests.
            types: Only groups of these types: classic, consumer, share, streams.
            states: Only groups in these states, such as Stable, in upper or lower case.
            pattern: Only groups whose id contains a match of this regular expression.
            private: Whether to return side groups too; see `commits.side_groups`.

        Raises:
            KafkaGroupError: A broker does not answer. No incomplete list is returned.
        """
        kinds, wanted = {one.lower() for one in types}, {one.lower() for one in states}
        with self._client() as client:
            every = client.run(list_groups(client, Deadline(_CALL_SECONDS)))
            left_out = frozenset() if private else private_groups(one.group for one in every)
            found = tuple(
                one
                for one in every
                if one.group not in left_out
                and (not kinds or one.type in kinds)
                and (not wanted or one.state.lower() in wanted)
                and (pattern is None or re.search(pattern, one.group))
            )
            if lag:
                found = self._with_lag(client, found)
            names = {one.group for one in every}
            found = tuple(
                replace(one, halt=_halt(client, one.group)) if HALT.of(one.group) in names else one for one in found
            )
        return Rows(GroupSummary, found)

    def states(self) -> dict[str, str]:
        """Return the state of each consumer group that this user may describe, by group id.

        Raises:
            KafkaGroupError: A broker does not answer. No incomplete list is returned.
        """
        found = self._call(list_groups)
        return {one.group: one.state for one in found if is_consumer_group(one)}

    def describe(self, group: str, *, rate_seconds: float | None = None) -> Group:
        """Return the group's state and assignor, and its members with their partitions, racks and user data.

        Args:
            group: The group id.
            rate_seconds: Also return each member's commit rate, from two samples this many seconds apart.

        Raises:
            UnknownGroupError: The group has neither members nor committed offsets.
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        with self._client() as client:
            if rate_seconds is None:
                return client.run(describe_group(client, group, Deadline(_CALL_SECONDS)))
            return self._with_rates(client, group, rate_seconds)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, without offsets of transactions that are still open.

        The result is empty for a group that does not exist.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        found = self._call(lambda client, deadline: fetch_committed(client, group, None, deadline, stable=False))
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def lag(
        self, group: str, partitions: Collection[TopicPartition] = (), *, topics: Collection[str] = ()
    ) -> Rows[PartitionLag]:
        """Return the group's lag in each partition that has a committed offset or an owner.

        Args:
            group: The group id.
            partitions: Further partitions to include.
            topics: Topics whose partitions are all included, for example a topic that the group has not read yet.

        Raises:
            UnknownGroupError: The group does not exist, and neither partitions nor topics are given.
            UnknownTopicError: One of `partitions` or `topics` does not exist.
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        _, rows = self.snapshot((group,), partitions, topics=topics)[group]
        return rows

    def snapshot(
        self,
        groups: Iterable[str],
        partitions: Collection[TopicPartition] = (),
        *,
        topics: Collection[str] = (),
        must_exist: bool = True,
    ) -> dict[str, tuple[Group | None, Rows[PartitionLag]]]:
        """Return several groups with their lag, fetched over the same connections.

        Args:
            groups: The group ids.
            partitions: See `lag`.
            topics: See `lag`.
            must_exist: Whether a missing group is an error when neither partitions nor topics are given.

        Returns:
            Each group and its lag, by group id. The group is None if it does not exist and `must_exist` is false.

        Raises:
            UnknownGroupError: A group does not exist, see `must_exist`.
            UnknownTopicError: One of `partitions` or `topics` does not exist.
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        with self._client() as client:
            cluster = self._cluster(client)
            positions = client.run(positions_of(client, groups, Deadline(_CALL_SECONDS)))
            if must_exist and not partitions and not topics:
                _check_all_exist(client, positions)
            of_topics = cluster.partitions(TopicSelection(topics=tuple(topics))) if topics else ()
            lags = lag_of(cluster, positions, {*partitions, *of_topics})
        return {name: (of.group, lags[name]) for name, of in positions.items()}

    # ---- rewind, create, copy
    def moves(
        self, group: str, target: Target, partitions: Collection[TopicPartition] = (), *, topics: Collection[str] = ()
    ) -> Rows[Move]:
        """Return the offsets that a rewind to a target would set; change nothing.

        Args:
            group: The group id; it need not exist.
            target: Where the group continues, see `kafka_source.model.rewind_target`.
            partitions: The partitions to move.
            topics: Topics whose partitions are all moved. Without `partitions` and `topics`, the target's partitions
                are moved. If the target names no partitions, all partitions with a committed offset are moved.

        Raises:
            OptionError: The target shifts committed offsets, and a partition has none.
            UnknownGroupError: The target names a group that does not exist.
            UnknownTopicError: A topic or partition does not exist.
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with self._client() as client:
            cluster = self._cluster(client)
            like = other_group(target)
            positions = client.run(
                positions_of(client, {group, *([] if like is None else [like])}, Deadline(_CALL_SECONDS))
            )
            other = {} if like is None else positions[like].committed
            if like is not None:
                _check_all_exist(client, {like: positions[like]})
            committed = positions[group].committed
            chosen = {*partitions, *(cluster.partitions(TopicSelection(topics=tuple(topics))) if topics else ())}
            if not chosen:
                chosen = {*target.offsets} if isinstance(target, AtOffsets) else {*(other if like else committed)}
            return Rows(Move, moves_now(cluster, target, chosen, committed, other))

    def rewind(self, group: str, offsets: Mapping[TopicPartition, int], *, checkpoints_follow: bool = True) -> None:
        """Set a group's committed offsets to earlier or later offsets. The group must have no members.

        Args:
            group: The group id.
            offsets: The new offset of each partition.
            checkpoints_follow: Whether stopped queries with a checkpoint continue at these offsets. If false, such a
                query continues at the higher of its checkpoint's and the group's offset, as after another client's
                commit.

        Raises:
            FencedError: The group has members.
            KafkaGroupError: The user lacks the permission, or the brokers do not answer.
        """
        rewinds = dict.fromkeys(offsets, strategies.new_id()) if checkpoints_follow else {}
        self._commit(group, self._entries(offsets, rewinds))

    def create(self, group: str, offsets: Mapping[TopicPartition, int], *, dry_run: bool = False) -> None:
        """Create a group: commit the offsets at which its members will begin.

        Args:
            group: The group id.
            offsets: The next offset to read, by partition.
            dry_run: Only check that the group does not exist.

        Raises:
            InvalidConfigurationError: The group exists.
            KafkaGroupError: The user lacks the permission, or the brokers do not answer.
        """
        self._check_new(group)
        if not dry_run:
            self._commit(group, self._entries(offsets, {}))

    def clone(self, source: str, group: str, *, topics: Collection[str] = (), dry_run: bool = False) -> Rows[Move]:
        """Create a group with another group's committed offsets and their metadata; return the new offsets as moves.

        Args:
            source: The group to copy; it may have members.
            group: The group to create.
            topics: Only these topics; empty: all.
            dry_run: Only check both groups and return the moves.

        Raises:
            UnknownGroupError: The source does not exist, or has no committed offsets of these topics.
            InvalidConfigurationError: The new group exists.
            KafkaGroupError: The user lacks the permission, or the brokers do not answer.
        """
        self._check_new(group)
        return self.import_offsets(self.export_offsets(source, topics=topics), group, dry_run=dry_run)

    def export_offsets(self, group: str, *, topics: Collection[str] = ()) -> OffsetsDocument:
        """Return the committed offsets of a group as a document for `import_offsets`.

        The call waits until open transactions of the group have ended (KIP-447).

        Args:
            group: The group id; it may have members.
            topics: Only these topics; empty: all.

        Raises:
            UnknownGroupError: The group does not exist, or has no committed offsets of these topics.
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with self._client() as client:
            cluster = self._cluster(client)
            found = client.run(fetch_all_committed(client, group, Deadline(_CALL_SECONDS)))
            known = cluster.topics({tp.topic for tp in found})
            # A group keeps the offsets of a deleted topic for a moment.
            offsets = {
                tp: one
                for tp, one in found.items()
                if known[tp.topic] is not None and (not topics or tp.topic in topics)
            }
            if not found:
                _check_all_exist(client, client.run(positions_of(client, (group,), Deadline(_CALL_SECONDS))))
            if not offsets:
                raise _no_offsets(group, topics, found)
            ids = {name: topic.id for name, topic in known.items() if topic is not None and topic.id is not None}
            used = {tp.topic for tp in offsets}
            return OffsetsDocument(
                group, cluster.cluster_id(), offsets, {name: one for name, one in ids.items() if name in used}
            )

    def import_offsets(
        self, document: OffsetsDocument, group: str | None = None, *, dry_run: bool = False
    ) -> Rows[Move]:
        """Commit the offsets of a document, with their metadata; return the moves. The group must have no members.

        Args:
            document: The result of `export_offsets`.
            group: The group to commit for; None: the group of the document.
            dry_run: Only check the document and return the moves.

        Raises:
            InvalidConfigurationError: The document is of another cluster, or a topic was deleted or created again.
            FencedError: The group has members.
            KafkaGroupError: The user lacks the permission, or the brokers do not answer.
        """
        name = group or document.group
        with self._client() as client:
            self._check_place(client, document)
            before = client.run(fetch_committed(client, name, None, Deadline(_CALL_SECONDS), stable=False))
        if not dry_run:
            # `_check_place` has checked the topics, so no topic ids are committed with the offsets.
            self._commit(name, {tp: without_topic(one) for tp, one in document.offsets.items()})
        return Rows(
            Move,
            (
                Move(tp.topic, tp.partition, before.get(tp), one.offset, one.offset)
                for tp, one in sorted(document.offsets.items())
            ),
        )

    def check_document(self, document: OffsetsDocument) -> None:
        """Check that the offsets of a document are valid in this cluster.

        Args:
            document: The result of `export_offsets`.

        Raises:
            InvalidConfigurationError: The document is of another cluster, or a topic was deleted or created again.
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with self._client() as client:
            self._check_place(client, document)

    # ---- delete

    def delete(self, group: str) -> None:
        """Delete a group with its committed offsets; the group must have no members.

        Raises:
            UnknownGroupError: The group does not exist.
            KafkaGroupError: The group has members, or the user lacks the permission.
        """
        self._call(lambda client, deadline: delete_group(client, group, deadline))

    def delete_offsets(
        self,
        group: str,
        partitions: Collection[TopicPartition] = (),
        *,
        topics: Collection[str] = (),
        dry_run: bool = False,
    ) -> None:
        """Delete the committed offsets of some partitions (KIP-496); no member may subscribe to their topics.

        Args:
            group: The group id.
            partitions: The partitions.
            topics: Topics whose offsets are all deleted.
            dry_run: Only check that the group has offsets of the topics.

        Raises:
            UnknownGroupError: The group does not exist, or has no offsets of a topic.
            KafkaGroupError: A member subscribes to a topic, or the user lacks the permission.
        """
        committed = self.committed(group)
        of_topics = {tp for tp in committed if tp.topic in topics}
        if missing := set(topics) - {tp.topic for tp in of_topics}:
            raise _no_offsets(group, missing, committed)
        wanted = {*partitions, *of_topics}
        if not dry_run:
            self._call(lambda client, deadline: delete_offsets(client, group, wanted, deadline))

    # ---- parts

    def _check_place(self, client: KafkaClient, document: OffsetsDocument) -> None:
        cluster = self._cluster(client)
        known = cluster.topics({tp.topic for tp in document.offsets})
        check_place(document, cluster.cluster_id(), {topic: one.id for topic, one in known.items() if one is not None})

    def _with_lag(self, client: KafkaClient, groups: tuple[GroupSummary, ...]) -> tuple[GroupSummary, ...]:
        consumers = [one.group for one in groups if is_consumer_group(one)]
        positions = client.run(positions_of(client, consumers, Deadline(_CALL_SECONDS)))
        lags = lag_of(self._cluster(client), positions)

        def with_lag(one: GroupSummary) -> GroupSummary:
            group = positions[one.group].group if one.group in positions else None
            if group is None:
                return one
            rows = lags[one.group]
            if not rows:
                # Without committed offsets and owned partitions, for example in a rebalance, the lag is unknown.
                return replace(one, members=len(group.members))
            uncommitted = sum(row.committed is None for row in rows)
            return replace(
                one, members=len(group.members), lag=sum(row.behind or 0 for row in rows), uncommitted=uncommitted
            )

        return tuple(map(with_lag, groups))

    def _with_rates(self, client: KafkaClient, group: str, seconds: float) -> Group:
        """Sample a group twice, and return the group with the commit rate of each member."""
        looks: list[tuple[float, Group, Mapping[TopicPartition, int]]] = []
        for pause in (0.0, seconds):
            time.sleep(pause)
            positions = client.run(positions_of(client, (group,), Deadline(_CALL_SECONDS)))
            _check_all_exist(client, positions)
            found = positions[group].group
            if found is not None:
                looks.append((time.monotonic(), found, positions[group].committed))
        (began, before, committed_before), (ended, now, committed) = looks
        rates = rates_of(before.members, committed_before, now.members, committed, ended - began)
        return replace(now, members=tuple(replace(one, rate=rates[one.member_id]) for one in now.members))

    def _entries(
        self, offsets: Mapping[TopicPartition, int], rewinds: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, CommitOffset]:
        with self._client() as client:
            cluster = self._cluster(client)
            found = cluster.topics({tp.topic for tp in offsets})
            ids = {name: topic.id for name, topic in found.items() if topic is not None and topic.id is not None}
            # A query compares an offset without a rewind with its checkpoint, whose epoch is of the records before.
            epochs = client.run(leader_epochs(client, offsets, Deadline(_LOOK_UP_SECONDS))) if rewinds else {}
            return with_notes(offsets, rewinds, None, epochs, ids, cluster.cluster_id())

    def _commit(self, group: str, offsets: Mapping[TopicPartition, CommitOffset]) -> None:
        no_member = SlotCredentials.without_membership(group)
        try:
            self._call(lambda client, deadline: commit_offsets(client, no_member, offsets, deadline))
        except FencedError as error:
            raise FencedError(
                f"Group {group} has members, which would overwrite the offsets: stop them, then rewind the group.",
                code=error.code,
            ) from None

    def _check_new(self, group: str) -> None:
        try:
            self.describe(group)
        except UnknownGroupError:
            return
        raise InvalidConfigurationError(f"Group {group} exists already; choose another name, or use `rewind`.")

    @contextmanager
    def _client(self) -> Iterator[KafkaClient]:
        with closing(KafkaClient(self._settings)) as client:
            yield client

    def _cluster(self, client: KafkaClient) -> Cluster:
        """Return a cluster that uses the client's connections, which the client closes."""
        return Cluster(self._settings, client=client)

    def _call(self, work: Callable[[KafkaClient, Deadline], Coroutine[Any, Any, _T]]) -> _T:
        with self._client() as client:
            return client.run(work(client, Deadline(_CALL_SECONDS)))


def _halt(client: KafkaClient, group: str) -> str | None:
    halt = client.run(fetch_halt(client, group, Deadline(_CALL_SECONDS)))
    if halt is None:
        return None
    idle = client.run(fetch_idle(client, group, round(time.time() * 1000), Deadline(_CALL_SECONDS)))
    return f"{halt}; idle, and still running: {', '.join(idle)}" if idle else str(halt)


def _no_offsets(group: str, topics: Collection[str], committed: Iterable[TopicPartition]) -> UnknownGroupError:
    """Return the error for a group without committed offsets of these topics; empty: of any topic."""
    of = f" of {', '.join(sorted(topics))}" if topics else ""
    meant = did_you_mean(min(topics), (tp.topic for tp in committed)) if topics else ""
    return UnknownGroupError(f"Group {group} has no committed offsets{of}.{meant}", code=ErrorCode.GROUP_ID_NOT_FOUND)


def _check_all_exist(client: KafkaClient, positions: Mapping[str, GroupPositions]) -> None:
    missing = [name for name, of in positions.items() if of.group is None]
    if missing:
        known = client.run(list_groups(client, Deadline(_CALL_SECONDS)))
        raise unknown_group(missing[0], (one.group for one in known))
