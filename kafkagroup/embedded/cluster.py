"""`EmbeddedKafka`: start, stop, kill, pause and restart one or three nodes on this machine, for demos and tests."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkagroup.embedded import admin_calls
from kafkagroup.embedded.jars import KAFKA_VERSION, Progress, broker_version, kafka_jars, reporter
from kafkagroup.embedded.java import BrokerError, find_java
from kafkagroup.embedded.node import (
    Node,
    NodeFiles,
    cluster_id_of,
    format_storage,
    formatted_files,
    is_formatted,
    needs_zookeeper,
    new_uuid,
    wait_until_started,
    zookeeper_node,
)
from kafkagroup.embedded.security import (
    Mechanism,
    Security,
    TlsFiles,
    broker_settings,
    client_settings,
    java_client_settings,
    make_tls_files,
)
from kafkagroup.embedded.server_config import LOOPBACK, NodePorts, free_ports, render_properties, server_config
from kafkagroup.embedded.tools import QUICK_START, class_path, jvm_command, prepare_archive

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_START_ATTEMPTS = 3


class EmbeddedKafka:
    """A Kafka cluster in KRaft mode; each node is a broker and a controller in its own process.

    Use the class as a context manager. Node ids begin at 1. If the process that started the nodes ends, even by
    SIGKILL, the nodes stop.

    Args:
        nodes: The number of nodes, 1 or 3.
        config: Broker settings (as in server.properties) that take precedence over the embedded defaults.
        security: Authentication, encryption and ACLs of the client listener; None: PLAINTEXT without users.
        advertised_ports: By node id, a port that the node advertises instead of its own, such as a `TcpProxy`'s port.
        data_dir: The folder for the data, which remain when the cluster stops; None: a folder that `stop` removes.
        heap: The heap size of each node's JVM, as in `-Xmx`.
        jvm_options: Further options of each node's JVM. The default options shorten a node's start. With `()` a node
            starts more slowly and runs faster.
        start_timeout: Seconds within which a node must have started.
        version: The version of Kafka that the nodes run, 2.8 or newer; None: `$KAFKAGROUP_KAFKA_VERSION`, else the
            newest version that this package knows. A version before 3.3 runs with ZooKeeper.
        on_progress: Called with each line about the one-time preparations: the download of the jars and the archive of
            their classes. The lines are also logged at INFO.

    Raises:
        ValueError: `nodes` is neither 1 nor 3, `advertised_ports` has an unknown node, or `security` has ACLs and the
            version runs with ZooKeeper.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        security: Security | None = None,
        advertised_ports: Mapping[int, int] | None = None,
        data_dir: Path | str | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        start_timeout: float = 60.0,
        version: str | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"nodes must be 1 or 3, got {nodes}")
        self._count = nodes
        self._config = dict(config or {})
        self._security = security or Security()
        self._tls: TlsFiles | None = None
        self._advertised = dict(advertised_ports or {})
        if unknown := set(self._advertised) - set(self.node_ids):
            raise ValueError(f"advertised_ports names nodes {sorted(unknown)}; the nodes are {self.node_ids}")
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._jvm = (f"-Xmx{heap}", *jvm_options)
        self._start_timeout = start_timeout
        self._version = version or broker_version()
        if needs_zookeeper(self._version) and self._security.acls:
            raise ValueError(f"ACLs need Kafka 3.3 or newer here, and the version is {self._version}")
        self._zookeeper: Node | None = None
        self._zookeeper_port: int | None = None
        self._on_progress = on_progress
        self._folder: Path | None = None
        self._nodes: dict[int, Node] = {}
        self._ports: dict[int, NodePorts] = {}

    def __repr__(self) -> str:
        return f"EmbeddedKafka(nodes={self._count}, bootstrap_servers={self._addresses()!r})"

    # ---- the whole cluster

    def start(self) -> EmbeddedKafka:
        """Start every node, and wait until all nodes are registered and answer.

        Raises:
            JavaError: No usable Java was found.
            JarsError: Kafka's jars are not in the cache and could not be downloaded.
            BrokerError: The cluster is already started, or a node did not start (with the end of the node's log).
        """
        if self._nodes:
            raise BrokerError("This cluster is already started. Use the running cluster, or stop it first.")
        java = find_java()
        kafka_jars(self._version, on_progress=self._on_progress)
        if self._version == KAFKA_VERSION:
            prepare_archive(java, class_path(), _train, reporter(self._on_progress))
        return self._start()

    def _start(self) -> EmbeddedKafka:
        self._folder = self._make_folder()
        try:
            self._tls = make_tls_files(find_java(), self._folder) if self._security.tls else None
            self._start_nodes()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Send every node SIGTERM and, after the timeout, SIGKILL; remove temporary data.

        Args:
            timeout: Seconds before SIGKILL; None: 20 if the data is kept, else 0, because a clean stop takes seconds.
        """
        if timeout is None:
            timeout = 0.0 if self._data_dir is None else 20.0
        for node in self._nodes.values():
            node.ask_to_stop()
        deadline = time.monotonic() + timeout
        for node in self._nodes.values():
            if not node.join(max(0.0, deadline - time.monotonic())):
                node.kill()
        # ZooKeeper stops last, because a broker that stops cleanly notifies ZooKeeper.
        if self._zookeeper is not None:
            self._zookeeper.kill()
        self._nodes, self._ports, self._zookeeper = {}, {}, None
        if self._folder is not None and self._data_dir is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Return `host:port,…` of the client listener.

        Raises:
            BrokerError: The cluster is not started.
        """
        if not self._ports:
            raise BrokerError("The cluster is not started: call start(), or use a with statement.")
        return self._addresses()

    @property
    def internal_bootstrap_servers(self) -> str:
        """Return `host:port,…` of the inter-broker listener, which gives full rights.

        The listener is PLAINTEXT and bypasses any `TcpProxy`; its ports never change.
        """
        return ",".join(f"{LOOPBACK}:{ports.internal}" for ports in self._ports.values())

    def _addresses(self) -> str:
        return ",".join(f"{LOOPBACK}:{ports.advertised or ports.client}" for ports in self._ports.values())

    # ---- one node

    @property
    def node_ids(self) -> list[int]:
        """Return the nodes' ids, which are also their broker ids: 1, 2, …"""
        return list(range(1, self._count + 1))

    def is_running(self, node_id: int = 1) -> bool:
        """Return whether the node's process exists, even if the node is paused."""
        return self._node(node_id).running

    def pid(self, node_id: int = 1) -> int | None:
        """Return the process id of the node's JVM; None if the node does not run."""
        return self._node(node_id).pid

    def port(self, node_id: int = 1) -> int:
        """Return the port of the node's client listener, which may differ from the advertised port."""
        self._node(node_id)
        return self._ports[node_id].client

    def log(self, node_id: int = 1) -> str:
        """Return the broker's log since its last start."""
        return self._node(node_id).log_of_this_start()

    def data_folder(self, node_id: int = 1) -> Path:
        """Return the broker's data folder (`log.dirs`), which has a folder for each partition."""
        return self._node(node_id).files.data

    def kill(self, node_id: int = 1) -> None:
        """Kill the node with SIGKILL, so that the node cannot notify clients or other nodes."""
        self._node(node_id).kill()

    def pause(self, node_id: int = 1) -> None:
        """Suspend the node with SIGSTOP. The node's connections stay open, but the node does not answer."""
        self._node(node_id).pause()

    def resume(self, node_id: int = 1) -> None:
        """Continue a paused node with SIGCONT. To wait until the node is registered again, call `wait_ready`."""
        self._node(node_id).resume()

    def restart(self, node_id: int = 1, *, new_ports: bool = False) -> None:
        """Stop the node cleanly if the node runs, start it, and wait until it is registered.

        Args:
            node_id: The node to restart.
            new_ports: Move the client listener to another port, as after a failover. An advertised port stays the same.

        Raises:
            BrokerError: The node did not start; the error has the end of the node's log.
        """
        node = self._node(node_id)
        node.ask_to_stop()
        if not node.join(20.0):
            node.kill()
        if new_ports:
            self._ports[node_id] = replace(self._ports[node_id], client=free_ports(1)[0])
            self._write_config(node_id)
        node.spawn()
        deadline = time.monotonic() + self._start_timeout
        wait_until_started([node], deadline)
        self._wait_registered([node_id], {node_id}, deadline)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until every running node answers with metadata that list all running nodes.

        Args:
            timeout: Seconds to wait.

        Raises:
            BrokerError: The timeout expired; the error has the end of the nodes' logs.
        """
        running = self._running()
        self._wait_registered(running, set(running), time.monotonic() + timeout)

    # ---- topics

    def admin(self) -> AdminClient:
        """Return a new `confluent_kafka` admin client with full rights.

        Keep a reference to the client until its calls have returned; otherwise Python destroys the client.
        """
        return admin_calls.admin_client({"bootstrap.servers": self.internal_bootstrap_servers})

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 1, config: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic and wait until every running node knows the leader of each of its partitions.

        Args:
            name: The topic's name.
            partitions: The number of partitions.
            replication_factor: The number of replicas of each partition.
            config: Topic settings, for example `{"cleanup.policy": "compact"}`.

        Returns:
            The topic's name.

        Raises:
            confluent_kafka.KafkaException: The broker refused the request.
            BrokerError: A node's metadata did not contain the topic within 30 s.
        """
        admin_calls.create_topic(self._internal(), name, partitions, replication_factor, config or {})
        for node_id in self._running():
            self._wait_for(
                partial(admin_calls.sees_topic, self._internal(node_id), name, partitions),
                f"Node {node_id} did not get the metadata of the new topic {name} in time",
            )
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running node knows this topic.

        Afterwards you can create a topic of the same name, and clients do not confuse the two topics.

        Raises:
            confluent_kafka.KafkaException: The broker refused the request, for example because the topic is unknown.
            BrokerError: A node's metadata still contained the topic after 30 s.
        """
        admin_calls.delete_topic(self._internal(), name)
        for node_id in self._running():
            self._wait_for(
                partial(admin_calls.misses_topic, self._internal(node_id), name),
                f"Node {node_id} still has the metadata of the deleted topic {name}",
            )

    # ---- security

    def client_config(self, user: str | None = None, mechanism: Mechanism = "PLAIN") -> dict[str, str]:
        """Return the settings with which a confluent-kafka (librdkafka) client connects, including the password.

        Args:
            user: One of the users of `Security`; None: the first user.
            mechanism: The SASL mechanism.

        Raises:
            ValueError: The user or mechanism is unknown, or a user was given and the listener has no users.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **client_settings(self._security, self._tls, user, mechanism),
        }

    def java_client_config(self, user: str | None = None, mechanism: Mechanism = "PLAIN") -> dict[str, str]:
        """Return the settings with which a Java client connects, including the password.

        With the prefix `kafka.`, these settings are options of Spark's Kafka source. The arguments and errors are those
        of `client_config`.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **java_client_settings(self._security, self._tls, user, mechanism),
        }

    def java_client_file(self, user: str | None = None, mechanism: Mechanism = "PLAIN") -> Path:
        """Write `java_client_config` to a file that only its owner can read, for Kafka's tools (`--command-config`).

        Returns:
            The file's path. The file is removed with the cluster's folder.
        """
        config = self.java_client_config(user, mechanism)
        handle, name = tempfile.mkstemp(prefix="client-", suffix=".properties", dir=self._folder)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(render_properties(config))
        return Path(name)

    def allow(self, user: str, *operations: str, resource: str = "topic", name: str = "*") -> None:
        """Add ACLs that allow a user operations on a resource, and wait until every running node applies them.

        The cluster must have `Security(acls=True)`, which denies every operation without an ACL.

        Args:
            user: One of the users of `Security`.
            operations: ACL operations, for example "READ", "WRITE", "DESCRIBE", "ALL".
            resource: The resource type: "topic", "group", "transactional_id" or "broker" (the cluster).
            name: The resource's name; "*" for all resources of this type, "kafka-cluster" for the cluster.

        Raises:
            KeyError: The operation or the resource type is unknown.
            BrokerError: A node did not apply the ACL within 30 s.
        """
        admin_calls.allow(self._internal(), user, resource, name, operations)
        for node_id in self._running():
            for operation in operations:
                self._wait_for(
                    partial(admin_calls.sees_acl, self._internal(node_id), user, resource, name, operation),
                    f"Node {node_id} did not apply the ACL that allows {user} {operation} on {resource} {name} in time",
                )

    # ---- inside

    def _node(self, node_id: int) -> Node:
        if not self._nodes:
            raise BrokerError("The cluster is not started: call start(), or use a with statement.")
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
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._ports = self._choose_ports()
            if needs_zookeeper(self._version):
                self._start_zookeeper()
            self._nodes = {i: self._make_node(i) for i in self.node_ids}
            for i in self.node_ids:
                self._write_config(i)
            if self._zookeeper is None:
                self._format()
            deadline = time.monotonic() + self._start_timeout
            for node in self._nodes.values():
                node.spawn()
            try:
                wait_until_started(list(self._nodes.values()), deadline)
                self._wait_registered(self.node_ids, set(self.node_ids), deadline)
                self._set_users(deadline)
                return
            except BrokerError as error:
                # Another process may take a port before the broker binds it. In this case, choose other ports.
                if attempt == _START_ATTEMPTS or "Address already in use" not in str(error):
                    raise
                for node in self._nodes.values():
                    node.kill()

    def _start_zookeeper(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.kill()
        (self._zookeeper_port,) = free_ports(1)
        self._zookeeper = zookeeper_node(self._version, self._existing_folder(), self._zookeeper_port)
        self._zookeeper.spawn()

    def _choose_ports(self) -> dict[int, NodePorts]:
        ports = iter(free_ports(3 * self._count))
        return {i: NodePorts(next(ports), next(ports), next(ports), self._advertised.get(i)) for i in self.node_ids}

    def _existing_folder(self) -> Path:
        if self._folder is None:
            raise BrokerError("The cluster is not started: call start(), or use a with statement.")
        return self._folder

    def _make_node(self, node_id: int) -> Node:
        files = NodeFiles(self._existing_folder() / f"node-{node_id}")
        files.folder.mkdir(mode=0o700, exist_ok=True)
        command = jvm_command(
            *self._jvm,
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.showThreadName=false",
            main_class="kafka.Kafka",
            args=[str(files.config)],
            version=self._version,
        )
        return Node(node_id, files, command, self._folder if self._data_dir is None else None)

    def _write_config(self, node_id: int) -> None:
        files = self._nodes[node_id].files
        controllers = {i: ports.controller for i, ports in self._ports.items()}
        security = broker_settings(self._security, self._tls)
        config = server_config(
            node_id, self._ports[node_id], controllers, files.data, security, self._config, self._zookeeper_port
        )
        files.config.touch(mode=0o600)
        files.config.write_text(render_properties(config), encoding="ascii")

    def _format(self) -> None:
        unformatted = [node for node in self._nodes.values() if not is_formatted(node.files.data)]
        if not unformatted:
            return
        formatted = [node for node in self._nodes.values() if node not in unformatted]
        cluster_id = cluster_id_of(formatted[0].files.data) if formatted else new_uuid()
        # The text has no ports, passwords or folders, so all clusters with these settings have the same text.
        one = server_config(1, NodePorts(1, 2, 3), {1: 3}, Path(), broker_settings(Security(), None), self._config)
        files = formatted_files(self._version, render_properties(one))
        for node in unformatted:
            format_storage(node.id, node.files.data, cluster_id, files)

    def _wait_registered(self, asked: Sequence[int], expected: set[int], deadline: float) -> None:
        for node_id in asked:
            self._wait_for(
                partial(admin_calls.sees_brokers, self._internal(node_id), expected),
                f"Node {node_id} does not see all of the brokers {sorted(expected)}",
                deadline,
            )

    def _set_users(self, deadline: float) -> None:
        """Set the users' SCRAM passwords, and wait until a user can log in at every node."""
        if not self._security.sasl:
            return
        admin_calls.set_scram_passwords(self._internal(), self._security.users)
        last = list(self._security.users)[-1]
        login = client_settings(self._security, self._tls, last, "SCRAM-SHA-512")
        for node_id in self.node_ids:
            at = {**login, "bootstrap.servers": f"{LOOPBACK}:{self._ports[node_id].client}"}
            self._wait_for(partial(admin_calls.answers, at), f"User {last} cannot log in at node {node_id}", deadline)

    def _wait_for(self, look: Callable[[], bool], complaint: str, deadline: float | None = None) -> None:
        until = time.monotonic() + 30 if deadline is None else deadline
        if not admin_calls.until(until, look):
            logs = "".join(f"\nThe end of node {i}'s log:\n{node.log_tail(15)}" for i, node in self._nodes.items())
            raise BrokerError(f"{complaint}.{logs}")

    def _running(self) -> list[int]:
        return [i for i, node in self._nodes.items() if node.running]

    def _internal(self, node_id: int | None = None) -> dict[str, str]:
        if node_id is None:
            return {"bootstrap.servers": self.internal_bootstrap_servers}
        return {"bootstrap.servers": f"{LOOPBACK}:{self._ports[node_id].internal}"}


def _train(archive: Path) -> None:
    """Run a broker once, so that its exiting JVM writes the loaded classes to `archive`.

    The timeouts are long, because the JVM needs some seconds to write the archive.
    """
    options = (*QUICK_START, f"-XX:ArchiveClassesAtExit={archive}")
    kafka = EmbeddedKafka(jvm_options=options, start_timeout=120, version=KAFKA_VERSION)
    try:
        kafka._start().create_topic("training")
    finally:
        kafka.stop(timeout=120)
