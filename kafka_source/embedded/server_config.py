"""A node's server.properties as plain data. Nothing here touches a disk or a socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_source.embedded.ports import LOOPBACK

#: The listener that clients use; its port may move and its address may be a proxy's.
CLIENT = "CLIENT"
#: The listener of the brokers among themselves and of our own admin calls: plain, never proxied, never moved.
INTERNAL = "INTERNAL"
#: The controllers' listener.
CONTROLLER = "CONTROLLER"


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The loopback ports of one node; `advertised` is what clients are told in place of `client`."""

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
) -> dict[str, str]:
    """The settings of a combined broker and controller.

    Args:
        node_id: from 1.
        ports: of this node.
        controllers: every node's id and controller port.
        log_dir: where its data goes.
        security: settings of the client listener and the authorizer; they must set its protocol.
        overrides: the user's settings; they win.
    """
    nodes = len(controllers)
    replicas = min(nodes, 3)
    in_sync = min(nodes, 2)
    config: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{i}@{LOOPBACK}:{port}" for i, port in sorted(controllers.items())),
        "listeners": ",".join(
            f"{name}://{LOOPBACK}:{port}"
            for name, port in ((CLIENT, ports.client), (INTERNAL, ports.internal), (CONTROLLER, ports.controller))
        ),
        "advertised.listeners": (
            f"{CLIENT}://{LOOPBACK}:{ports.advertised or ports.client},{INTERNAL}://{LOOPBACK}:{ports.internal}"
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": INTERNAL,
        "log.dirs": log_dir,
        # Topics are made on purpose; the internal ones are small and survive the loss of one node of three.
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
        # Groups that form at once, and sessions as short as a test likes.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        # A dead node is noticed, and a dead producer's transaction aborted, in seconds.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # Compaction in seconds, and without the 128 MiB that its map takes by default.
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
    """Java's properties format."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in config.items())


def protocol_map(client_protocol: str) -> str:
    """The value of `listener.security.protocol.map` for a client listener of this protocol."""
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
    # Only leading blanks would be lost.
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
