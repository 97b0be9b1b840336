"""The transaction coordinator as KIP-98, 360 and 890 describe it, with both protocols of KIP-890.

The version of a request decides its protocol, whatever the feature `transaction.version` is. TxnOffsetCommit from
version 5 on adds its group to the transaction, and Produce from version 12 on adds its partitions. EndTxn 5 raises the
epoch, or changes the producer id when its epochs are used up.

EndTxn is answered when the decision is in the log. The markers reach the groups and partitions later, so for a while
after the answer an offset stays uncertain, and a record stays invisible.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_source.error_codes import ErrorCode as E
from kafka_source.kafka_client import GROUP, TRANSACTION
from kafka_source.kafka_client.messages import transaction as messages
from tests.simulation.brokers.cluster import Broker, Cluster, Reply
from tests.simulation.brokers.group_coordinator import GroupCoordinators, Key
from tests.simulation.brokers.logs import Logs
from tests.simulation.world import BEGIN, Event

_InTransaction = messages.AddOffsetsToTxnRequest | messages.EndTxnRequest | messages.TxnOffsetCommitRequest

EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
# The first versions of TxnOffsetCommit, Produce and EndTxn that are of the second protocol.
_ADDS_ITSELF, _ADDS_PARTITIONS, _RAISES_EPOCH = 5, 12, 5
# The time in which a coordinator writes a broker's addition to its log; until then the coordinator adds nothing else.
_ADDING_SECONDS = 0.002
# The longest time that the log's replicas take; a transaction with a shorter timeout does not wait for the replicas.
_REPLICATION_MS = 100
# The errors that a partition's leader does not pass on.
_AWAY = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS)


@dataclass
class Transaction:
    """A transactional id.

    Attributes:
        last_epoch: The previous epoch; in memory only.
        last_id: The previous producer id, if the last change of the state has changed it.
        next_id: The producer id that replaces the current producer id when the markers are written; -1: no replacement.
        groups: The groups in the transaction whose markers are not written yet.
        partitions: The partitions in the transaction whose markers are not written yet.
        started: The time at which it began.
        added: The time at which a broker last added a group or partition.
        begun_late: Whether it began with a request whose connection had ended.
    """

    producer_id: int
    timeout: float
    epoch: int = 0
    last_epoch: int = -1
    last_id: int = -1
    next_id: int = -1
    state: str = EMPTY
    groups: set[str] = field(default_factory=set)
    partitions: set[Key] = field(default_factory=set)
    started: float = 0.0
    added: float = -1.0
    begun_late: bool = False
    timer: Event | None = None


class TransactionsWatch:
    """Observes transactions; the default does nothing."""

    def marked(self, name: str, *, commit: bool) -> None:
        """Observe that all markers of a transaction are written."""

    def expired(self, name: str) -> None:
        """Observe that a transaction was open for too long."""


class TransactionCoordinators:
    """The coordinators of all transactional ids of a cluster.

    Attributes:
        timed_out: The transactional ids with a transaction that was open for too long.
        seen: By transactional id, the last state that a process without a task has seen: producer id, epoch, state.
        slow_markers: Whether some markers are written late.
        watch: Observes what the coordinators do without a request.
        max_epoch: The highest epoch of a producer id; only fences use it, no client gets it.
    """

    def __init__(self, cluster: Cluster, groups: GroupCoordinators) -> None:
        self._cluster, self._world, self._groups = cluster, cluster.world, groups
        self.transactions: dict[str, Transaction] = {}
        self.timed_out: set[str] = set()
        self.seen: dict[str, tuple[int, int, str]] = {}
        self.max_epoch = 32_767
        self.slow_markers = False
        self._producer_ids = itertools.count(1000)
        self.watch = TransactionsWatch()
        cluster.moved.append(self._moved)
        handlers: dict[Any, Callable[[Broker, Any, Reply], None]] = {
            messages.InitProducerIdRequest: self._init,
            messages.AddOffsetsToTxnRequest: self._add_offsets,
            messages.AddPartitionsToTxnRequest: self._add_partitions,
            messages.EndTxnRequest: self._end,
            messages.DescribeTransactionsRequest: self._describe,
            messages.ListTransactionsRequest: self._list,
        }
        cluster.handlers.update(handlers)
        groups.verify = self._verify
        Logs(cluster).verify = self._verify_partition

    def open(self) -> list[str]:
        """Return the ids whose transaction has not ended."""
        over = (EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT)
        return sorted(name for name, one in self.transactions.items() if one.state not in over)

    def _moved(self, kind: int, key: str) -> None:
        if kind == TRANSACTION and key in self.transactions:
            self.transactions[key].last_epoch = -1

    def _refusal(self, broker: Broker, name: str, api: str, code: int = 0) -> int:
        code = self._cluster.refusal(broker, TRANSACTION, name) or int(code)
        if code:
            self._cluster.errors[api, code] += 1
        return code

    def _init(self, broker: Broker, request: messages.InitProducerIdRequest, reply: Reply) -> None:
        name = request.transactional_id or ""
        code = self._refusal(broker, name, "InitProducerId")
        if not code and len(self._cluster.brokers) > 1 and request.transaction_timeout_ms < _REPLICATION_MS:
            code = int(E.COORDINATOR_NOT_AVAILABLE)
        if not code:
            code = self._initialised(name, request)
            if code:
                self._cluster.errors["InitProducerId", code] += 1
        one = self.transactions.get(name)
        given = code == 0 and one is not None
        reply(
            messages.InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=int(code),
                producer_id=one.producer_id if given and one else -1,
                producer_epoch=one.epoch if given and one else -1,
            )
        )

    def _initialised(self, name: str, request: messages.InitProducerIdRequest) -> int:
        one = self.transactions.get(name)
        if one is None:
            timeout = request.transaction_timeout_ms / 1000
            self.transactions[name] = Transaction(next(self._producer_ids), timeout)
            return 0
        expected = request.producer_epoch if request.producer_id >= 0 else -1
        is_last_of_before = request.producer_id == one.last_id and self._is_exhausted(expected)
        if request.producer_id not in (-1, one.producer_id) and not is_last_of_before:
            return int(E.PRODUCER_FENCED)
        if one.state == ONGOING:
            # Fence the id's owner, for each process that asks, and abort the transaction. The next attempt is answered.
            one.last_epoch, one.epoch = one.epoch, one.epoch + 1
            self._decide(one, commit=False)
            return int(E.CONCURRENT_TRANSACTIONS)
        if one.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return int(E.CONCURRENT_TRANSACTIONS)
        if expected in (-1, one.epoch) and self._is_exhausted(one.epoch):
            one.last_id, one.producer_id = one.producer_id, next(self._producer_ids)
            one.last_epoch, one.epoch = expected, 0
        elif expected in (-1, one.epoch):
            one.last_epoch, one.epoch = expected, one.epoch + 1
            one.last_id = -1
        elif expected != one.last_epoch:
            return int(E.PRODUCER_FENCED)
        one.state, one.timeout = EMPTY, request.transaction_timeout_ms / 1000
        return 0

    def _is_exhausted(self, epoch: int) -> bool:
        return epoch >= self.max_epoch - 1

    def _problem(self, one: Transaction | None, request: _InTransaction) -> int:
        if one is None or one.producer_id != request.producer_id:
            return int(E.INVALID_PRODUCER_ID_MAPPING)
        return 0 if request.producer_epoch == one.epoch else int(E.PRODUCER_FENCED)

    def _verify(self, request: messages.TxnOffsetCommitRequest) -> int:
        one = self.transactions.get(request.transactional_id)
        if self._cluster.version >= _ADDS_ITSELF:
            code = self._added(one, request)
            if one is not None and not code:
                one.groups.add(request.group_id)
            return code
        problem = self._problem(one, request)
        if problem or one is None:
            return problem
        return 0 if one.state == ONGOING and request.group_id in one.groups else int(E.INVALID_TXN_STATE)

    def _added(
        self, one: Transaction | None, request: messages.AddOffsetsToTxnRequest | messages.TxnOffsetCommitRequest
    ) -> int:
        """Begin a transaction, as the broker of one of its groups or partitions requests."""
        node = self._cluster.coordinator(TRANSACTION, request.transactional_id)
        if node < 0:
            return int(E.COORDINATOR_NOT_AVAILABLE)
        refusal = self._cluster.refusal(self._cluster.brokers[node], TRANSACTION, request.transactional_id)
        if refusal:
            return refusal
        if one is not None and one.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return int(E.CONCURRENT_TRANSACTIONS)
        if one is not None and one.added < self._world.now < one.added + _ADDING_SECONDS:
            return int(E.CONCURRENT_TRANSACTIONS)
        problem = self._problem(one, request)
        if one is None or problem:
            return int(E.INVALID_PRODUCER_EPOCH) if problem == E.PRODUCER_FENCED else problem
        self._begin(request.transactional_id, one)
        one.added = self._world.now
        return 0

    def _add_offsets(self, broker: Broker, request: messages.AddOffsetsToTxnRequest, reply: Reply) -> None:
        one, code = self._begun(broker, request.transactional_id, "AddOffsetsToTxn", request)
        if one is not None and not code:
            one.groups.add(request.group_id)
        reply(messages.AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=int(code)))

    def _add_partitions(self, broker: Broker, request: messages.AddPartitionsToTxnRequest, reply: Reply) -> None:
        asked = messages.AddOffsetsToTxnRequest(
            request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        one, code = self._begun(broker, asked.transactional_id, "AddPartitionsToTxn", asked)
        topics = {topic.name: topic.partitions for topic in request.v3_and_below_topics}
        if one is not None and not code:
            one.partitions |= {(topic, number) for topic, numbers in topics.items() for number in numbers}
        result_type = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult
        partition_type = result_type.AddPartitionsToTxnPartitionResult
        reply(
            messages.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    result_type(topic, [partition_type(number, int(code)) for number in numbers])
                    for topic, numbers in topics.items()
                ]
            )
        )

    def _begun(
        self, broker: Broker, name: str, api: str, request: messages.AddOffsetsToTxnRequest
    ) -> tuple[Transaction | None, int]:
        """Begin a transaction unless it is open; return the transaction, and the error code of a refusal."""
        one = self.transactions.get(name)
        code = self._refusal(broker, name, api, self._problem(one, request))
        if code or one is None:
            return one, code
        if one.state in (PREPARE_COMMIT, PREPARE_ABORT):
            self._cluster.errors[api, int(E.CONCURRENT_TRANSACTIONS)] += 1
            return one, int(E.CONCURRENT_TRANSACTIONS)
        self._begin(name, one)
        return one, 0

    def _begin(self, name: str, one: Transaction) -> None:
        if one.state != ONGOING:
            one.state, one.groups, one.partitions, one.started = ONGOING, set(), set(), self._world.now
            one.timer = self._world.after(one.timeout, lambda: self._expire(name, one))
            one.last_id, one.begun_late = -1, self._cluster.handles_late

    def _end(self, broker: Broker, request: messages.EndTxnRequest, reply: Reply) -> None:
        name = request.transactional_id
        one = self.transactions.get(name)
        raises = self._cluster.version >= _RAISES_EPOCH
        code = self._refusal(broker, name, "EndTxn", 0 if raises else self._problem(one, request))
        if not code:
            if one is None:
                code = int(E.INVALID_PRODUCER_ID_MAPPING)
            elif raises:
                code = self._ended_and_raised(one, request)
            else:
                code = self._ended(one, commit=request.committed)
            if code:
                self._cluster.errors["EndTxn", code] += 1
        if one is None or code or not raises:
            reply(messages.EndTxnResponse(error_code=int(code)))
        else:
            given = (one.producer_id, one.epoch) if one.next_id < 0 else (one.next_id, 0)
            reply(messages.EndTxnResponse(producer_id=given[0], producer_epoch=given[1]))

    def _ended_and_raised(self, one: Transaction, request: messages.EndTxnRequest) -> int:
        """End a transaction in the second protocol, in which a repeated request has the previous epoch."""
        epoch, commit = request.producer_epoch, request.committed
        in_order = epoch == one.epoch
        after_change = one.last_id == request.producer_id and one.epoch == 0 and epoch == self.max_epoch - 1
        repeated = one.epoch == epoch + 1 or after_change
        if request.producer_id != one.producer_id and not after_change:
            return int(E.INVALID_PRODUCER_ID_MAPPING)
        if one.state in (EMPTY, ONGOING):
            is_valid = in_order
        elif one.state in (PREPARE_COMMIT, PREPARE_ABORT):
            is_valid = one.epoch == epoch + 1
        else:
            is_valid = in_order or repeated
        if not is_valid:
            return int(E.PRODUCER_FENCED)
        if one.state == ONGOING or (in_order and not commit and one.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)):
            # A transaction without groups and partitions can be aborted too.
            if self._is_exhausted(one.epoch):
                one.next_id = next(self._producer_ids)
            if one.state != ONGOING:
                one.groups, one.partitions = set(), set()
            one.last_epoch, one.epoch = one.epoch, one.epoch + 1
            self._decide(one, commit=commit)
            return 0
        return self._ended(one, commit=commit) if repeated else int(E.INVALID_TXN_STATE)

    def _ended(self, one: Transaction, *, commit: bool) -> int:
        if one.state == ONGOING:
            self._decide(one, commit=commit)
            return 0
        if one.state == (PREPARE_COMMIT if commit else PREPARE_ABORT):
            return int(E.CONCURRENT_TRANSACTIONS)
        if one.state == (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return 0
        return int(E.INVALID_TXN_STATE)

    def _expire(self, name: str, one: Transaction) -> None:
        if one.state == ONGOING:
            self._world.tell("transactions", f"the transaction of {name} has timed out")
            self.timed_out.add(name)
            self.watch.expired(name)
            one.last_epoch, one.epoch = -1, one.epoch + 1
            self._decide(one, commit=False)

    def _decide(self, one: Transaction, *, commit: bool) -> None:
        one.state = PREPARE_COMMIT if commit else PREPARE_ABORT
        if one.timer is not None:
            one.timer.cancel()
        longest = self._world.random.choice((0.02, 0.02, 0.02, 0.3)) if self.slow_markers else 0.02
        self._world.after(self._world.random.uniform(0.001, longest), lambda: self._mark(one, commit=commit))

    def _mark(self, one: Transaction, *, commit: bool) -> None:
        """Write the markers to the logs of groups and partitions; try again if a broker is away."""
        for name in sorted(one.groups):
            if self._cluster.coordinator(GROUP, name) >= 0:
                self._groups.group(name).mark(one.producer_id, one.epoch, commit=commit)
                one.groups.discard(name)
        for topic, number in sorted(one.partitions):
            partition = self._cluster.topics[topic].partitions[number]
            if self._cluster.brokers[partition.leader].up:
                partition.log.mark(one.producer_id, one.epoch, commit=commit)
                one.partitions.discard((topic, number))
        if one.groups or one.partitions:
            self._world.after(0.1, lambda: self._mark(one, commit=commit))
        else:
            one.state = COMPLETE_COMMIT if commit else COMPLETE_ABORT
            if one.next_id >= 0:
                one.last_id, one.producer_id, one.epoch, one.next_id = one.producer_id, one.next_id, 0, -1
            self.watch.marked(next(name for name, known in self.transactions.items() if known is one), commit=commit)

    # ---- who asks about transactions

    def _verify_partition(self, name: str, producer_id: int, epoch: int, tp: Key) -> int:
        one = self.transactions.get(name)
        if self._cluster.version >= _ADDS_PARTITIONS:
            code = self._added(one, messages.AddOffsetsToTxnRequest(name, producer_id, epoch))
            if one is not None and not code:
                one.partitions.add(tp)
            return int(E.NOT_ENOUGH_REPLICAS) if code in _AWAY else code
        if self._cluster.coordinator(TRANSACTION, name) < 0:
            return int(E.NOT_ENOUGH_REPLICAS)
        if one is None or one.producer_id != producer_id:
            return int(E.INVALID_PRODUCER_ID_MAPPING)
        if one.epoch != epoch:
            return int(E.INVALID_PRODUCER_EPOCH)
        return 0 if one.state == ONGOING and tp in one.partitions else int(E.INVALID_TXN_STATE)

    def _describe(self, broker: Broker, request: messages.DescribeTransactionsRequest, reply: Reply) -> None:
        state_type = messages.DescribeTransactionsResponse.TransactionState

        def describe(name: str) -> Any:
            one = self.transactions.get(name)
            code = self._refusal(broker, name, "DescribeTransactions", 0 if one else E.TRANSACTIONAL_ID_NOT_FOUND)
            if code or one is None:
                return state_type(error_code=int(code), transactional_id=name)
            if self._cluster.client is None or self._cluster.client.task is None:
                self.seen[name] = one.producer_id, one.epoch, one.state
            topics: dict[str, list[int]] = {}
            for topic, number in sorted(one.partitions):
                topics.setdefault(topic, []).append(number)
            return state_type(
                error_code=0,
                transactional_id=name,
                transaction_state=one.state,
                transaction_timeout_ms=int(one.timeout * 1000),
                transaction_start_time_ms=int((BEGIN + one.started) * 1000),
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                topics=[state_type.TopicData(topic, numbers) for topic, numbers in topics.items()],
            )

        reply(
            messages.DescribeTransactionsResponse(
                transaction_states=[describe(name) for name in request.transactional_ids]
            )
        )

    def _list(self, broker: Broker, request: messages.ListTransactionsRequest, reply: Reply) -> None:
        if self._cluster.loads(broker, TRANSACTION):
            reply(messages.ListTransactionsResponse(error_code=int(E.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        state_type = messages.ListTransactionsResponse.TransactionState
        pattern = re.compile(request.transactional_id_pattern or ".*")
        reply(
            messages.ListTransactionsResponse(
                transaction_states=[
                    state_type(name, one.producer_id, one.state)
                    for name, one in sorted(self.transactions.items())
                    if self._cluster.coordinator(TRANSACTION, name) == broker.node
                    and one.state in request.state_filters
                    and pattern.fullmatch(name)
                ]
            )
        )
