"""A Kafka cluster with each broker on a host of its own, see `testbed.hosts`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kafkagroup.embedded import admin_calls
from kafkagroup.embedded.jars import KAFKA_VERSION
from kafkagroup.embedded.node import Node, NodeFiles, format_storage, formatted_files, new_uuid, wait_until_started
from kafkagroup.embedded.security import Security, broker_settings
from kafkagroup.embedded.server_config import CLIENT, CONTROLLER, INTERNAL, NodePorts, render_properties, server_config
from kafkagroup.embedded.tools import QUICK_START, jvm_command
from testbed.hosts import Hosts

_PORTS = NodePorts(client=9092, internal=9094, controller=9093)
_START_SECONDS = 120


class HostBrokers:
    """A cluster with one broker, which is also a controller, on each of these hosts; use this in a with statement.

    Args:
        folder: The folder for settings, logs and data.
        hosts: The hosts.
        racks: The names of the hosts that have a broker, with their racks.
    """

    def __init__(self, folder: Path, hosts: Hosts, racks: Mapping[str, str]) -> None:
        self._folder, self._hosts, self._racks = folder, hosts, racks
        self._nodes: list[Node] = []
        #: For clients on the hosts: the hosts' names.
        self.bootstrap_servers = ",".join(f"{name}:{_PORTS.client}" for name in racks)
        #: For clients on this machine, which cannot resolve the hosts' names.
        self.internal_bootstrap_servers = ",".join(map(self._internal, racks))

    def __enter__(self) -> HostBrokers:
        try:
            deadline = time.monotonic() + _START_SECONDS
            # The output of StorageTool does not depend on the settings of listeners.
            files = formatted_files(KAFKA_VERSION, render_properties(self._config("", 1, Path())))
            cluster_id = new_uuid()
            for number, name in enumerate(self._racks, 1):
                node = self._node(number, name)
                format_storage(number, node.files.data, cluster_id, files)
                node.spawn()
                self._nodes.append(node)
            wait_until_started(self._nodes, deadline)
            everyone = {node.id for node in self._nodes}
            for name in self._racks:
                self._wait_for(name, partial(admin_calls.sees_brokers, expected=everyone))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all brokers."""
        for node in self._nodes:
            node.kill()

    def create_topic(self, name: str, partitions: int, config: Mapping[str, object] | None = None) -> str:
        """Create a topic with a replica on each host, and wait until all brokers know it."""
        servers = {"bootstrap.servers": self.internal_bootstrap_servers}
        admin_calls.create_topic(servers, name, partitions, len(self._racks), config or {})
        for host in self._racks:
            self._wait_for(host, partial(admin_calls.sees_topic, name=name, partitions=partitions))
        return name

    def _wait_for(self, host: str, look: Callable[[Mapping[str, str]], bool]) -> None:
        settings = {"bootstrap.servers": self._internal(host)}
        found = admin_calls.until(time.monotonic() + _START_SECONDS, lambda: look(settings))
        assert found, "".join(f"\n{node.log_tail(15)}" for node in self._nodes)

    def _internal(self, host: str) -> str:
        return f"{self._hosts.addresses[host]}:{_PORTS.internal}"

    def _node(self, number: int, name: str) -> Node:
        files = NodeFiles(self._folder / name)
        files.data.mkdir(parents=True)
        files.config.write_text(render_properties(self._config(name, number, files.data)), encoding="ascii")
        quiet = "-Dorg.slf4j.simpleLogger.showThreadName=false"
        command = jvm_command("-Xmx384m", *QUICK_START, quiet, main_class="kafka.Kafka", args=[str(files.config)])
        return Node(number, files, self._hosts.place(name).command(command), None)

    def _config(self, name: str, number: int, data: Path) -> dict[str, str]:
        listeners = {CLIENT: _PORTS.client, INTERNAL: _PORTS.internal, CONTROLLER: _PORTS.controller}
        voters = (f"{voter}@{host}:{_PORTS.controller}" for voter, host in enumerate(self._racks, 1))
        overrides = {
            "listeners": ",".join(f"{listener}://:{port}" for listener, port in listeners.items()),
            "advertised.listeners": f"{CLIENT}://{name or 'any'}:{_PORTS.client},"
            f"{INTERNAL}://{self._hosts.addresses.get(name, 'any')}:{_PORTS.internal}",
            "controller.quorum.voters": ",".join(voters),
            "broker.rack": self._racks.get(name, ""),
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
        security = broker_settings(Security(), None)
        return server_config(
            number, _PORTS, dict.fromkeys(range(1, len(self._racks) + 1), 0), data, security, overrides
        )
