"""A node's server.properties, with defaults for tests, and the choice of its loopback ports."""

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"

# Ports below the ephemeral ranges (Linux from 32768, macOS from 49152). In those ranges, any outgoing connection may
# take the port of a stopped broker, and a client that tries to reach the broker can even connect to itself.
_LOWEST, _HIGHEST = 15000, 32000


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports on which no process listens, ascending.

    Raises:
        OSError: Too few free ports were found.
    """
    choices = random.SystemRandom()
    found: set[int] = set()
    for _ in range(2000):
        if len(found) == count:
            return sorted(found)
        port = choices.randrange(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.add(port)
    raise OSError(
        f"Found only {len(found)} of {count} free ports between {_LOWEST} and {_HIGHEST} on {LOOPBACK}; "
        "stop processes that listen there"
    )


def is_free(port: int) -> bool:
    """Return whether a listener can be bound to this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


#: The listener for clients. Its port can change, and it can advertise the port of a proxy.
CLIENT = "CLIENT"
#: The inter-broker listener, also used by the admin calls of `EmbeddedKafka`: PLAINTEXT, never behind a proxy, on a
#: port that never changes.
INTERNAL = "INTERNAL"
#: The controllers' listener.
CONTROLLER = "CONTROLLER"


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The loopback ports of one node; `advertised`, if set, is advertised to clients instead of `client`."""

    client: int
    internal: int
    controller: int
    advertised: int | None = None


def server_config(
    node_id: int,
    ports: NodePorts,
    controllers: Mapping[int, int],
    log_dir: Path,
    security: Mapping[str, str],
    overrides: Mapping[str, object],
    zookeeper: int | None = None,
) -> dict[str, str]:
    """Return the settings of a node that is broker and controller.

    Args:
        node_id: The node's id, from 1.
        ports: The ports of this node.
        controllers: The controller port of every node, by node id.
        log_dir: The node's data folder.
        security: The settings of the client listener and the authorizer, including `listener.security.protocol.map`.
        overrides: The user's settings, which take precedence.
        zookeeper: The port of ZooKeeper, for a broker before 3.3; None: KRaft mode.
    """
    nodes = len(controllers)
    replicas = min(nodes, 3)
    in_sync = min(nodes, 2)
    listeners = {CLIENT: ports.client, INTERNAL: ports.internal}
    mode: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{i}@{LOOPBACK}:{port}" for i, port in sorted(controllers.items())),
        "controller.listener.names": CONTROLLER,
    }
    if zookeeper is None:
        listeners[CONTROLLER] = ports.controller
    else:
        mode = {
            "broker.id": node_id,
            "zookeeper.connect": f"{LOOPBACK}:{zookeeper}",
            # The broker may start before ZooKeeper. A dead broker is detected when the broker's session expires.
            "zookeeper.connection.timeout.ms": 60_000,
            "zookeeper.session.timeout.ms": 4000,
        }
    config: dict[str, object] = {
        **mode,
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items()),
        "advertised.listeners": (
            f"{CLIENT}://{LOOPBACK}:{ports.advertised or ports.client},{INTERNAL}://{LOOPBACK}:{ports.internal}"
        ),
        "inter.broker.listener.name": INTERNAL,
        "log.dirs": log_dir,
        # A misspelt topic must fail and not be created. Internal topics have few partitions, for a quick start, and
        # survive the loss of one node of three.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # The first rebalance of a group does not wait for more members, and tests may use short session timeouts.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        # Within seconds, a dead node is fenced and an expired transaction is aborted.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # Tests write records with old timestamps. With Kafka's default, the broker deletes such records within minutes,
        # even from the active segment. A topic may set retention.ms.
        "log.retention.ms": -1,
        # Compaction starts within a second, and its map takes less than the default of 128 MiB.
        "log.cleaner.backoff.ms": 500,
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        "log.cleaner.io.buffer.size": 64 * 1024,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "num.recovery.threads.per.data.dir": 1,
        **security,
        **overrides,
    }
    return {name: _text(value) for name, value in config.items()}


def render_properties(config: Mapping[str, str]) -> str:
    """Return the settings as text in Java's properties format."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in config.items())


def protocol_map(client_protocol: str) -> str:
    """Return the value of `listener.security.protocol.map` for a client listener of this protocol."""
    return f"{CLIENT}:{client_protocol},{INTERNAL}:PLAINTEXT,{CONTROLLER}:PLAINTEXT"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    escaped = "".join(c if " " <= c <= "~" else _unicode_escape(c) for c in escaped)
    # Java's parser drops blanks at the start of a value unless they are escaped, and keeps blanks at the end.
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
