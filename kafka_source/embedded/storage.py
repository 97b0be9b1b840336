"""Formats a cluster's storage: Kafka's own tool for the first node, the same facts for the others.

A node needs `meta.properties` (who it is) and `bootstrap.checkpoint` (the cluster's feature levels). The checkpoint
is the same on every node, so one run of the tool (0.8 s) is enough for a cluster.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path


def new_uuid() -> str:
    """A random id as Kafka writes it: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_formatted(log_dir: Path) -> bool:
    """Whether a node can start on this folder."""
    return (log_dir / "meta.properties").is_file()


def cluster_id_of(log_dir: Path) -> str:
    """The cluster that a formatted folder belongs to."""
    for line in (log_dir / "meta.properties").read_text().splitlines():
        if line.startswith("cluster.id="):
            return line.partition("=")[2]
    raise ValueError(f"{log_dir / 'meta.properties'} names no cluster.id")


def format_storage(
    log_dirs: Sequence[tuple[int, Path]], cluster_id: str, first_config: Path, run_tool: Callable[..., object]
) -> None:
    """Formats the folder of every node.

    Args:
        log_dirs: node id and folder; the first is formatted by the tool.
        cluster_id: see `new_uuid`.
        first_config: the first node's server.properties.
        run_tool: called with a main class and its arguments; raises if the tool fails.
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
