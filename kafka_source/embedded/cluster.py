"""A real Kafka of one or three nodes on this machine, for demos and tests."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kafka_source.embedded.errors import BrokerError
from kafka_source.embedded.jars import kafka_jars
from kafka_source.embedded.java import find_java
from kafka_source.embedded.node import Node, NodeFiles, wait_until_started
from kafka_source.embedded.ports import LOOPBACK, free_ports
from kafka_source.embedded.server_config import NodePorts, protocol_map, render_properties, server_config
from kafka_source.embedded.storage import cluster_id_of, format_storage, is_formatted, new_uuid

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

#: Quick to start and small, rather than fast for hours: give `jvm_options=()` for benchmarks.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_START_ATTEMPTS = 3


class EmbeddedKafka:
    """A Kafka cluster in KRaft mode; each node is a broker and a controller in its own process.

    Usable as a context manager. Nodes are numbered from 1. When the process that started it dies, however it dies,
    the nodes are ended too.

    Args:
        nodes: how many, 1 or 3.
        config: broker settings (as in server.properties) that win over the defaults here.
        data_dir: where to keep the data over a stop; a temporary folder, removed at the end, if None.
        heap: of each node's JVM, as in `-Xmx`.
        jvm_options: further options of each node's JVM.
        start_timeout: seconds until a node must be up.

    Raises:
        ValueError: another number of nodes.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        data_dir: Path | str | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        start_timeout: float = 60.0,
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"nodes must be 1 or 3, got {nodes}")
        self._count = nodes
        self._config = dict(config or {})
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._jvm = (f"-Xmx{heap}", *jvm_options)
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._nodes: dict[int, Node] = {}
        self._ports: dict[int, NodePorts] = {}
        self._java: Path | None = None
        self._class_path = ""

    def __repr__(self) -> str:
        return f"EmbeddedKafka(nodes={self._count}, bootstrap_servers={self._addresses()!r})"

    # ---- the whole cluster

    def start(self) -> EmbeddedKafka:
        """Starts every node and returns when all are registered and answer.

        Raises:
            JavaError: no usable Java.
            JarsError: Kafka's jars are not in the cache and could not be downloaded.
            BrokerError: a node did not start; with the end of its log.
        """
        if self._nodes:
            raise BrokerError("This cluster is already started.")
        self._java = find_java()
        self._class_path = ":".join(map(str, kafka_jars()))
        self._folder = self._make_folder()
        try:
            self._start_nodes()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = 20.0) -> None:
        """Stops every node cleanly (after `timeout` seconds by force) and removes temporary data."""
        for node in self._nodes.values():
            node.ask_to_stop()
        deadline = time.monotonic() + timeout
        for node in self._nodes.values():
            if not node.join(max(0.0, deadline - time.monotonic())):
                node.kill()
        self._nodes, self._ports = {}, {}
        if self._folder is not None and self._data_dir is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of the listener for clients.

        Raises:
            BrokerError: the cluster is not started.
        """
        if not self._ports:
            raise BrokerError("The cluster is not started.")
        return self._addresses()

    @property
    def internal_bootstrap_servers(self) -> str:
        """`host:port,…` of the plain listener of the brokers among themselves: full rights, no proxy, fixed ports."""
        return ",".join(f"{LOOPBACK}:{ports.internal}" for ports in self._ports.values())

    def _addresses(self) -> str:
        return ",".join(f"{LOOPBACK}:{ports.advertised or ports.client}" for ports in self._ports.values())

    # ---- one node

    @property
    def node_ids(self) -> list[int]:
        """The nodes' ids, which are also their broker ids: 1, 2, …"""
        return list(range(1, self._count + 1))

    def is_running(self, node_id: int = 1) -> bool:
        """Whether the node's process lives (a paused one does)."""
        return self._node(node_id).running

    def pid(self, node_id: int = 1) -> int | None:
        """The process id of the node's JVM, None if it does not run."""
        return self._node(node_id).pid

    def port(self, node_id: int = 1) -> int:
        """The node's port for clients (its own, also when it advertises another)."""
        self._node(node_id)
        return self._ports[node_id].client

    def log(self, node_id: int = 1) -> str:
        """What the broker logged since its last start."""
        return self._node(node_id).log_of_this_start()

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL: the node is gone without a word to anybody."""
        self._node(node_id).kill()

    def pause(self, node_id: int = 1) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self._node(node_id).pause()

    def resume(self, node_id: int = 1) -> None:
        """Ends a pause; see `wait_ready` if the node must be back in the cluster."""
        self._node(node_id).resume()

    def restart(self, node_id: int = 1, *, new_ports: bool = False) -> None:
        """Stops the node cleanly if it runs, starts it again and waits until it is back in the cluster.

        Args:
            node_id: which node.
            new_ports: move its listener for clients to another port, as after a fail-over to other machines.

        Raises:
            BrokerError: it did not start; with the end of its log.
        """
        node = self._node(node_id)
        node.ask_to_stop()
        if not node.join(20.0):
            node.kill()
        if new_ports:
            old = self._ports[node_id]
            self._ports[node_id] = NodePorts(free_ports(1)[0], old.internal, old.controller)
            self._write_config(node_id)
        node.spawn()
        deadline = time.monotonic() + self._start_timeout
        wait_until_started([node], deadline)
        self._wait_registered([node_id], {node_id}, deadline)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Waits until every running node answers and knows all running nodes.

        Raises:
            BrokerError: the time is over.
        """
        running = [i for i, node in self._nodes.items() if node.running]
        self._wait_registered(running, set(running), time.monotonic() + timeout)

    # ---- topics and tools

    def admin(self) -> AdminClient:
        """A new `confluent_kafka` admin client with full rights."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.internal_bootstrap_servers, "log_level": 0})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Makes a topic and waits until every running node knows it with all of its leaders.

        Args:
            name: of the topic.
            partitions: how many.
            replication_factor: on how many nodes each is kept.
            config: topic settings, for instance `{"cleanup.policy": "compact"}`.

        Returns:
            The name.

        Raises:
            confluent_kafka.KafkaException: the broker refused it.
            BrokerError: it did not become ready within 30 s.
        """
        from confluent_kafka.cimpl import NewTopic

        settings = {key: str(value) for key, value in (config or {}).items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
        # A client that nobody holds is destroyed, and its calls with it.
        admin = self.admin()
        admin.create_topics([topic])[name].result(30)
        deadline = time.monotonic() + 30
        for node_id in [i for i, node in self._nodes.items() if node.running]:
            for metadata in self._metadata_of(node_id, deadline):
                found = metadata.topics.get(name)
                if (
                    found
                    and len(found.partitions) == partitions
                    and all(p.leader > 0 for p in found.partitions.values())
                ):
                    break
            else:
                raise BrokerError(f"Node {node_id} did not learn of the new topic {name} within 30 s.")
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.

        Raises:
            confluent_kafka.KafkaException: the broker refused it, for instance as there is none.
        """
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)

    @property
    def class_path(self) -> str:
        """The broker's jars as a Java class path; Kafka's command-line tools are in them."""
        return self._class_path

    def run_java(
        self, main_class: str, *args: str, stdin: str | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's own tools, for instance `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.

        Args:
            main_class: the tool.
            args: as on its command line; name the brokers by `bootstrap_servers` or `internal_bootstrap_servers`.
            stdin: its input.
            timeout: seconds until it is ended and `subprocess.TimeoutExpired` raised.

        Returns:
            The finished process with its output; its exit code is not judged.
        """
        return subprocess.run(
            self.java_command(main_class, *args), input=stdin or "", capture_output=True, text=True, timeout=timeout
        )

    def java_command(self, main_class: str, *args: str) -> list[str]:
        """The command of `run_java`, for a tool that is to run in the background."""
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [str(self._java), "-Xmx256m", *QUICK_START, quiet, "-cp", self._class_path, main_class, *args]

    # ---- inside

    def _node(self, node_id: int) -> Node:
        if not self._nodes:
            raise BrokerError("The cluster is not started.")
        try:
            return self._nodes[node_id]
        except KeyError:
            raise ValueError(f"There is no node {node_id}; the nodes are {self.node_ids}") from None

    def _make_folder(self) -> Path:
        if self._data_dir is None:
            return Path(tempfile.mkdtemp(prefix="kafkagroup-broker-"))
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._data_dir

    def _start_nodes(self) -> None:
        assert self._folder is not None
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._ports = self._choose_ports()
            self._nodes = {i: self._make_node(i) for i in self.node_ids}
            for i in self.node_ids:
                self._write_config(i)
            self._format()
            deadline = time.monotonic() + self._start_timeout
            for node in self._nodes.values():
                node.spawn()
            try:
                wait_until_started(list(self._nodes.values()), deadline)
                self._wait_registered(self.node_ids, set(self.node_ids), deadline)
                return
            except BrokerError as error:
                # Between our choice and the broker's bind another process can take a port.
                if attempt == _START_ATTEMPTS or "Address already in use" not in str(error):
                    raise
                for node in self._nodes.values():
                    node.kill()

    def _choose_ports(self) -> dict[int, NodePorts]:
        ports = iter(free_ports(3 * self._count))
        return {i: NodePorts(next(ports), next(ports), next(ports)) for i in self.node_ids}

    def _make_node(self, node_id: int) -> Node:
        assert self._folder is not None
        files = NodeFiles(self._folder / f"node-{node_id}")
        files.folder.mkdir(mode=0o700, exist_ok=True)
        command = [
            str(self._java),
            *self._jvm,
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.showThreadName=false",
            *("-cp", self._class_path, "kafka.Kafka", str(files.config)),
        ]
        return Node(node_id, files, command, self._folder if self._data_dir is None else None)

    def _write_config(self, node_id: int) -> None:
        files = self._nodes[node_id].files
        controllers = {i: ports.controller for i, ports in self._ports.items()}
        security = {"listener.security.protocol.map": protocol_map("PLAINTEXT")}
        config = server_config(node_id, self._ports[node_id], controllers, files.data, security, self._config)
        files.config.touch(mode=0o600)
        files.config.write_text(render_properties(config), encoding="ascii")

    def _format(self) -> None:
        unformatted = [node for node in self._nodes.values() if not is_formatted(node.files.data)]
        if not unformatted:
            return
        formatted = [node for node in self._nodes.values() if node not in unformatted]
        cluster_id = cluster_id_of(formatted[0].files.data) if formatted else new_uuid()
        format_storage(
            [(node.id, node.files.data) for node in unformatted], cluster_id, unformatted[0].files.config, self._tool
        )

    def _tool(self, main_class: str, *args: str) -> None:
        result = self.run_java(main_class, *args)
        if result.returncode != 0:
            raise BrokerError(f"{main_class} {args[0]} failed:\n{(result.stdout + result.stderr).strip()}")

    def _wait_registered(self, asked: Sequence[int], expected: set[int], deadline: float) -> None:
        for node_id in asked:
            for metadata in self._metadata_of(node_id, deadline):
                if expected <= set(metadata.brokers):
                    break
            else:
                raise BrokerError(
                    f"Node {node_id} does not see brokers {sorted(expected)}. "
                    f"The end of its log {self._nodes[node_id].files.log}:\n{self._nodes[node_id].log_tail()}"
                )

    def _metadata_of(self, node_id: int, deadline: float) -> Iterator[ClusterMetadata]:
        """This node's own view, again and again until the deadline."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        server = f"{LOOPBACK}:{self._ports[node_id].internal}"
        while time.monotonic() < deadline:
            # A new client each time: it knows no other broker yet, so that this one answers.
            client = AdminClient({"bootstrap.servers": server, "log_level": 0})
            with contextlib.suppress(KafkaException):
                yield client.list_topics(timeout=2)
            time.sleep(0.05)
