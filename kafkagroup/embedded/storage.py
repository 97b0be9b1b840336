"""Formats a cluster's storage: the first node with Kafka's StorageTool, the others with a copy of its files.

A node needs `meta.properties` (the ids of the cluster and the node) and `bootstrap.checkpoint` (the cluster's feature
levels). The checkpoint is the same on every node, so one run of the tool is enough for a cluster.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path


def new_uuid() -> str:
    """Return a random id in Kafka's format: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_formatted(log_dir: Path) -> bool:
    """Return whether the folder is formatted, so that a node can start on it."""
    return (log_dir / "meta.properties").is_file()


def cluster_id_of(log_dir: Path) -> str:
    """Return the id of the cluster that a formatted folder belongs to.

    Raises:
        ValueError: The folder's `meta.properties` has no cluster id.
    """
    for line in (log_dir / "meta.properties").read_text().splitlines():
        if line.startswith("cluster.id="):
            return line.partition("=")[2]
    raise ValueError(f"{log_dir / 'meta.properties'} has no cluster.id; delete the folder to format it again")


def format_storage(
    log_dirs: Sequence[tuple[int, Path]], cluster_id: str, first_config: Path, run_tool: Callable[..., object]
) -> None:
    """Format the folder of every node.

    Args:
        log_dirs: Each node's id and folder; the first folder is formatted by StorageTool.
        cluster_id: The id of the cluster, as returned by `new_uuid`.
        first_config: The first node's server.properties.
        run_tool: Runs a Java main class with its arguments, and raises if it fails.
    """
    (_, first), *others = log_dirs
    first.mkdir(parents=True, exist_ok=True)
    run_tool("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(first_config))
    for node_id, folder in others:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(first / "bootstrap.checkpoint", folder / "bootstrap.checkpoint")
        (folder / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_uuid()}\n"
        )
