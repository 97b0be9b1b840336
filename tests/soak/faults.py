"""The faults of the soak: brokers, coordinators, Spark's workers, executors and drivers, consumers, the network."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaException

from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import TcpProxy
from testbed.spark_cluster import SparkCluster
from tests.soak.queries import Output, Query, Shared
from tests.soak.side_topic import SideTopic


class Faults:
    """Does one thing at a time, of those that `rng` chooses, and takes it back.

    Args:
        rng: The source of all choices.
        kafka: The brokers.
        proxies: Between clients and each broker; without any, brokers and the network have no faults.
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
        # Each fault takes itself back.
        self._book: dict[str, Callable[[], None]] = {
            "worker killed": self._kill_worker,
            "executor killed": lambda: self._kill_one(self._workers.executors()),
            "executor suspended": lambda: self._suspend(self._workers.executors()[:1], 12),
            "python worker killed": lambda: self._kill_one(self._workers.python_workers()),
            "driver killed (exactly once)": self._kill_copys_driver,
            "driver stopped (exactly once)": self._stop_copys_driver,
            "driver killed (shared group)": lambda: self._end_shared_driver(self._shared[0].query.kill),
            "driver stopped (shared group)": lambda: self._end_shared_driver(self._shared[0].query.stop),
            "driver suspended": lambda: self._suspend(self._any_query().pids(), 15),
            "Java consumer killed": self._kill_consumer,
            "Java consumer stopped": self._stop_consumer,
            "partition added": self._side.grow,
            "topic created again": self._side.create_again,
        }
        if proxies:
            self._book |= {
                "broker killed": lambda: self._restart(self._any_node()),
                "broker suspended": lambda: self._suspend_broker(self._any_node()),
                "coordinator killed": lambda: self._restart(self._coordinator()),
                "coordinator suspended": lambda: self._suspend_broker(self._coordinator()),
                "connections cut": self._cut_connections,
                "network slow": self._slow_network,
                "network silent": self._silence_network,
                "answers lost": self._lose_answers,
                "unclean election": self._side.lose_records,
            }
        self._left: list[str] = []

    def one(self) -> str:
        """Do the next fault of a shuffled book; each comes once before any comes again."""
        if not self._left:
            self._left = self._rng.sample(list(self._book), len(self._book))
        name = self._left.pop()
        self._book[name]()
        self.done[name] += 1
        return name

    # ---- brokers

    def _restart(self, node: int) -> None:
        self._kafka.kill(node)
        self._pause(0, 6)
        self._kafka.restart(node)

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
        return self._any_node()

    # ---- Spark

    def _kill_worker(self) -> None:
        worker = self._rng.choice(self._workers.numbers)
        self._workers.kill_worker(worker)
        self._pause(0, 6)
        self._workers.start_worker(worker)

    def _kill_one(self, pids: Sequence[int]) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(pids), signal.SIGKILL)

    # ---- drivers

    def _kill_copys_driver(self) -> None:
        self._copy.query.kill()
        if self._rng.random() < 0.5:
            self._copy.finish_and_compare()
        self._copy.query.start()

    def _stop_copys_driver(self) -> None:
        self._copy.query.stop()
        self._copy.finish_and_compare()
        self._copy.query.start()

    def _end_shared_driver(self, end: Callable[[], None]) -> None:
        end()
        self._shared[0].check_offsets()
        self._shared[0].query.start()

    def _suspend(self, pids: Sequence[int], most: float) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            self._pause(1, most)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # ---- the other members of the groups

    def _kill_consumer(self) -> None:
        java = self._rng.choice(self._shared).java
        java.kill()
        self._pause(0, 5)
        java.start()

    def _stop_consumer(self) -> None:
        shared = self._rng.choice(self._shared)
        shared.java.stop()
        shared.check_offsets()
        self._pause(0, 5)
        shared.java.start()

    # ---- the network

    def _cut_connections(self) -> None:
        for _ in range(self._rng.randint(1, 5)):
            self._any_proxy().cut()
            self._pause(0, 1)

    def _slow_network(self) -> None:
        proxies = list(self._proxies.values())
        delay = self._rng.uniform(0.02, 0.2)
        try:
            for proxy in proxies:
                proxy.delay = delay
            self._pause(2, 10)
        finally:
            for proxy in proxies:
                proxy.delay = 0.0

    def _silence_network(self) -> None:
        proxy = self._any_proxy()
        proxy.hold()
        self._pause(1, 12)
        proxy.release()

    def _lose_answers(self) -> None:
        # The broker does what it is asked, and nobody hears of it.
        proxy = self._any_proxy()
        proxy.hold("response")
        self._pause(1, 4)
        proxy.cut()
        proxy.release()

    def _any_node(self) -> int:
        return self._rng.choice(self._kafka.node_ids)

    def _any_proxy(self) -> TcpProxy:
        return self._rng.choice(list(self._proxies.values()))

    def _any_query(self) -> Query:
        return self._rng.choice([self._copy.query, *(shared.query for shared in self._shared)])

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._rng.uniform(least, most))
