"""The ZooKeeper of brokers from before Kafka 3.3, which do not run in KRaft mode."""

from __future__ import annotations

import re
from pathlib import Path

from kafkagroup.embedded.node import Node, NodeFiles
from kafkagroup.embedded.ports import LOOPBACK
from kafkagroup.embedded.tools import QUICK_START, jvm_command

#: KRaft mode is ready for production since this version (KIP-833).
_KRAFT = (3, 3)


def needs_zookeeper(version: str) -> bool:
    """Return whether brokers of this version run with ZooKeeper here.

    Raises:
        ValueError: The text is no version of Kafka, such as `3.9.1`.
    """
    match = re.match(r"(\d+)\.(\d+)\.", version)
    if match is None:
        raise ValueError(f"Expected a version of Kafka such as 3.9.1, got {version!r}")
    return (int(match[1]), int(match[2])) < _KRAFT


def zookeeper_node(version: str, folder: Path, port: int) -> Node:
    """Return a process of ZooKeeper that is not started yet. It listens on the loopback address only.

    Args:
        version: The version of Kafka with whose jars ZooKeeper comes.
        folder: The cluster's folder; ZooKeeper has one in it.
        port: The port for the brokers.
    """
    files = NodeFiles(folder / "zookeeper")
    files.folder.mkdir(mode=0o700, exist_ok=True)
    files.config.write_text(
        f"dataDir={files.data}\nclientPort={port}\nclientPortAddress={LOOPBACK}\nadmin.enableServer=false\n"
    )
    command = jvm_command(
        "-Xmx256m",
        *QUICK_START,
        main_class="org.apache.zookeeper.server.ZooKeeperServerMain",
        args=[str(files.config)],
        version=version,
    )
    return Node(0, files, command, None)
