"""The transaction coordinator as KIP-98 and 360 describe it, before KIP-890's second protocol: the one that we use.

EndTxn is answered when the decision is in the log. The markers reach the groups later, so an offset stays uncertain for
a while after the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_source.error_codes import ErrorCode as E
from kafka_source.kafka_client import GROUP, TRANSACTION
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from tests.simulation.cluster import Broker, Cluster, Reply
from tests.simulation.group_coordinator import GroupCoordinators
from tests.simulation.world import Event

_InTransaction = AddOffsetsToTxnRequest | EndTxnRequest | TxnOffsetCommitRequest

EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"


@dataclass
class Transaction:
    """A transactional id.

    Attributes:
        last_epoch: The epoch before the present one; in memory only.
    """

    producer_id: int
    timeout: float
    epoch: int = 0
    last_epoch: int = -1
    state: str = EMPTY
    groups: set[str] = field(default_factory=set)
    timer: Event | None = None


class TransactionCoordinators:
    """The coordinators of all transactional ids of a cluster."""

    def __init__(self, cluster: Cluster, groups: GroupCoordinators) -> None:
        self._cluster, self._world, self._groups = cluster, cluster.world, groups
        self.transactions: dict[str, Transaction] = {}
        cluster.moved.append(self._moved)
        handlers: dict[Any, Callable[[Broker, Any, Reply], None]] = {
            InitProducerIdRequest: self._init,
            AddOffsetsToTxnRequest: self._add_offsets,
            EndTxnRequest: self._end,
        }
        cluster.handlers.update(handlers)
        groups.verify = self._verify

    def open(self) -> list[str]:
        """Return the ids whose transaction is not over."""
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

    def _init(self, broker: Broker, request: InitProducerIdRequest, reply: Reply) -> None:
        name = request.transactional_id or ""
        code = self._refusal(broker, name, "InitProducerId")
        if not code:
            code = self._initialised(name, request)
            if code:
                self._cluster.errors["InitProducerId", code] += 1
        one = self.transactions.get(name)
        given = code == 0 and one is not None
        reply(
            InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=int(code),
                producer_id=one.producer_id if given and one else -1,
                producer_epoch=one.epoch if given and one else -1,
            )
        )

    def _initialised(self, name: str, request: InitProducerIdRequest) -> int:
        one = self.transactions.get(name)
        if one is None:
            producer_id = 1000 + len(self.transactions)
            self.transactions[name] = Transaction(producer_id, request.transaction_timeout_ms / 1000)
            return 0
        one.timeout = request.transaction_timeout_ms / 1000
        expected = request.producer_epoch if request.producer_id >= 0 else -1
        if request.producer_id not in (-1, one.producer_id):
            return int(E.PRODUCER_FENCED)
        if one.state == ONGOING:
            # Fence the owner, whoever asks, and abort its transaction; the next try is answered.
            one.last_epoch, one.epoch = one.epoch, one.epoch + 1
            self._decide(one, commit=False)
            return int(E.CONCURRENT_TRANSACTIONS)
        if one.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return int(E.CONCURRENT_TRANSACTIONS)
        if expected in (-1, one.epoch):
            one.last_epoch, one.epoch, one.state = expected, one.epoch + 1, EMPTY
        elif expected != one.last_epoch:
            return int(E.PRODUCER_FENCED)
        return 0

    def _problem(self, one: Transaction | None, request: _InTransaction) -> int:
        if one is None or one.producer_id != request.producer_id:
            return int(E.INVALID_PRODUCER_ID_MAPPING)
        return 0 if request.producer_epoch == one.epoch else int(E.PRODUCER_FENCED)

    def _verify(self, request: TxnOffsetCommitRequest) -> int:
        one = self.transactions.get(request.transactional_id)
        problem = self._problem(one, request)
        if problem or one is None:
            return problem
        return 0 if one.state == ONGOING and request.group_id in one.groups else int(E.INVALID_TXN_STATE)

    def _add_offsets(self, broker: Broker, request: AddOffsetsToTxnRequest, reply: Reply) -> None:
        name = request.transactional_id
        one = self.transactions.get(name)
        code = self._refusal(broker, name, "AddOffsetsToTxn", self._problem(one, request))
        if not code and one is not None:
            if one.state in (PREPARE_COMMIT, PREPARE_ABORT):
                code = int(E.CONCURRENT_TRANSACTIONS)
                self._cluster.errors["AddOffsetsToTxn", code] += 1
            else:
                if one.state != ONGOING:
                    one.state, one.groups = ONGOING, set()
                    one.timer = self._world.after(one.timeout, lambda: self._expire(one))
                one.groups.add(request.group_id)
        reply(AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=int(code)))

    def _end(self, broker: Broker, request: EndTxnRequest, reply: Reply) -> None:
        name = request.transactional_id
        one = self.transactions.get(name)
        code = self._refusal(broker, name, "EndTxn", self._problem(one, request))
        if not code and one is not None:
            code = self._ended(one, commit=request.committed)
            if code:
                self._cluster.errors["EndTxn", code] += 1
        reply(EndTxnResponse(throttle_time_ms=0, error_code=int(code)))

    def _ended(self, one: Transaction, *, commit: bool) -> int:
        if one.state == ONGOING:
            self._decide(one, commit=commit)
            return 0
        if one.state == (PREPARE_COMMIT if commit else PREPARE_ABORT):
            return int(E.CONCURRENT_TRANSACTIONS)
        if one.state == (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return 0
        return int(E.INVALID_TXN_STATE)

    def _expire(self, one: Transaction) -> None:
        if one.state == ONGOING:
            self._world.tell("transactions", f"the transaction of producer {one.producer_id} has timed out")
            one.last_epoch, one.epoch = -1, one.epoch + 1
            self._decide(one, commit=False)

    def _decide(self, one: Transaction, *, commit: bool) -> None:
        one.state = PREPARE_COMMIT if commit else PREPARE_ABORT
        if one.timer is not None:
            one.timer.cancel()
        self._world.after(self._world.random.uniform(0.001, 0.02), lambda: self._mark(one, set(one.groups), commit))

    def _mark(self, one: Transaction, left: set[str], commit: bool) -> None:
        """Write the markers to the groups' logs; one whose coordinator is away is tried again."""
        for name in sorted(left):
            if self._cluster.coordinator(GROUP, name) >= 0:
                self._groups.group(name).mark(one.producer_id, one.epoch, commit=commit)
                left.discard(name)
        if left:
            self._world.after(0.1, lambda: self._mark(one, left, commit))
        else:
            one.state = COMPLETE_COMMIT if commit else COMPLETE_ABORT
