"""The faults of the soak: brokers, coordinators, Spark's workers, executors and drivers, consumers, the network."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

from confluent_kafka import KafkaException

from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import TcpProxy
from testbed.spark_cluster import SparkCluster
from tests.soak.queries import Output, Query, Shared
from tests.soak.side_topic import SideTopic

Fault = Callable[[], str]


class Faults:
    """Does one thing at a time, of those that `rng` chooses, and takes it back.

    Args:
        rng: The source of all choices.
        kafka: The brokers.
        proxies: Between clients and each broker.
        workers: Spark's.
        copy: The exactly-once query, with its output.
        shared: The queries that share groups. The driver of the last one is never killed: its memory is looked at.
        side: A topic that one of them reads besides.
    """

    def __init__(
        self,
        rng: random.Random,
        kafka: EmbeddedKafka,
        proxies: Mapping[int, TcpProxy],
        workers: SparkCluster,
        copy: Output,
        shared: Sequence[Shared],
        side: SideTopic,
    ) -> None:
        self._rng, self._kafka, self._proxies, self._workers = rng, kafka, proxies, workers
        self._copy, self._shared, self._side = copy, shared, side
        self.done: Counter[str] = Counter()
        self._book: Sequence[Fault] = (
            self._broker_killed,
            self._broker_suspended,
            self._coordinator_killed,
            self._coordinator_suspended,
            self._worker_killed,
            self._executor_killed,
            self._executor_suspended,
            self._python_worker_killed,
            self._copys_driver_killed,
            self._copys_driver_stopped,
            self._shared_driver_killed,
            self._shared_driver_stopped,
            self._driver_suspended,
            self._consumer_killed,
            self._consumer_stopped,
            self._connections_cut,
            self._network_slow,
            self._network_silent,
            self._answers_lost,
            self._side_topic_grows,
            self._side_topic_created_again,
            self._side_topic_loses_records,
        )
        self._left: list[Fault] = []

    def one(self) -> str:
        """Do the next fault of a shuffled book; each comes once before any comes again."""
        if not self._left:
            self._left = self._rng.sample(self._book, len(self._book))
        name = self._left.pop()()
        self.done[name] += 1
        return name

    # ---- brokers

    def _broker_killed(self) -> str:
        self._restart(self._rng.choice(self._kafka.node_ids))
        return "broker killed"

    def _coordinator_killed(self) -> str:
        self._restart(self._coordinator())
        return "coordinator killed"

    def _restart(self, node: int) -> None:
        self._kafka.kill(node)
        self._pause(0, 6)
        self._kafka.restart(node)

    def _broker_suspended(self) -> str:
        self._suspend_broker(self._rng.choice(self._kafka.node_ids))
        return "broker suspended"

    def _coordinator_suspended(self) -> str:
        self._suspend_broker(self._coordinator())
        return "coordinator suspended"

    def _suspend_broker(self, node: int) -> None:
        self._kafka.pause(node)
        self._pause(1, 12)
        self._kafka.resume(node)
        self._kafka.wait_ready()

    def _coordinator(self) -> int:
        """Return the broker that coordinates the group of one of the queries."""
        group = self._any_query().group
        # On a busy machine it may take longer: then any broker will do.
        with contextlib.suppress(KafkaException, FutureTimeoutError):
            described = self._kafka.admin().describe_consumer_groups([group])[group].result(timeout=30)
            return int(described.coordinator.id)
        return self._rng.choice(self._kafka.node_ids)

    # ---- Spark

    def _worker_killed(self) -> str:
        worker = self._rng.choice(self._workers.numbers)
        self._workers.kill_worker(worker)
        self._pause(0, 6)
        self._workers.start_worker(worker)
        return "worker killed"

    def _executor_killed(self) -> str:
        self._signal_one(self._workers.executors(), signal.SIGKILL)
        return "executor killed"

    def _python_worker_killed(self) -> str:
        self._signal_one(self._workers.python_workers(), signal.SIGKILL)
        return "python worker killed"

    def _executor_suspended(self) -> str:
        with self._suspended(self._workers.executors()[:1]):
            self._pause(1, 12)
        return "executor suspended"

    def _signal_one(self, pids: Sequence[int], number: signal.Signals) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(pids), number)

    # ---- drivers

    def _copys_driver_killed(self) -> str:
        self._copy.query.kill()
        if self._rng.random() < 0.5:
            self._copy.finish_and_compare()
        self._copy.query.start()
        return "driver killed (exactly once)"

    def _copys_driver_stopped(self) -> str:
        self._copy.query.stop()
        self._copy.finish_and_compare()
        self._copy.query.start()
        return "driver stopped (exactly once)"

    def _shared_driver_killed(self) -> str:
        shared = self._shared[0]
        shared.query.kill()
        shared.check_offsets()
        shared.query.start()
        return "driver killed (shared group)"

    def _shared_driver_stopped(self) -> str:
        shared = self._shared[0]
        shared.query.stop()
        shared.check_offsets()
        shared.query.start()
        return "driver stopped (shared group)"

    def _driver_suspended(self) -> str:
        with self._suspended(self._any_query().pids()):
            self._pause(1, 15)
        return "driver suspended"

    @contextmanager
    def _suspended(self, pids: Sequence[int]) -> Iterator[None]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # ---- the other members of the groups

    def _consumer_killed(self) -> str:
        java = self._rng.choice(self._shared).java
        java.kill()
        self._pause(0, 5)
        java.start()
        return "Java consumer killed"

    def _consumer_stopped(self) -> str:
        shared = self._rng.choice(self._shared)
        shared.java.stop()
        shared.check_offsets()
        self._pause(0, 5)
        shared.java.start()
        return "Java consumer stopped"

    # ---- topics

    def _side_topic_grows(self) -> str:
        self._side.grow()
        return "partition added"

    def _side_topic_created_again(self) -> str:
        self._side.create_again()
        return "topic created again"

    def _side_topic_loses_records(self) -> str:
        self._side.lose_records()
        return "unclean election"

    # ---- the network

    def _connections_cut(self) -> str:
        for _ in range(self._rng.randint(1, 5)):
            self._any_proxy().cut()
            self._pause(0, 1)
        return "connections cut"

    def _network_slow(self) -> str:
        proxies = list(self._proxies.values())
        delay = self._rng.uniform(0.02, 0.2)
        try:
            for proxy in proxies:
                proxy.delay = delay
            self._pause(2, 10)
        finally:
            for proxy in proxies:
                proxy.delay = 0.0
        return "network slow"

    def _network_silent(self) -> str:
        proxy = self._any_proxy()
        proxy.hold()
        self._pause(1, 12)
        proxy.release()
        return "network silent"

    def _answers_lost(self) -> str:
        # The broker does what it is asked, and nobody hears of it.
        proxy = self._any_proxy()
        proxy.hold("response")
        self._pause(1, 4)
        proxy.cut()
        proxy.release()
        return "answers lost"

    def _any_proxy(self) -> TcpProxy:
        return self._rng.choice(list(self._proxies.values()))

    def _any_query(self) -> Query:
        return self._rng.choice([self._copy.query, *(shared.query for shared in self._shared)])

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._rng.uniform(least, most))
