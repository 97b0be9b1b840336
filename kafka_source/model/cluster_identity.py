"""Cluster identity check: offsets are only valid in the cluster they came from, so a query in another cluster fails."""

from __future__ import annotations

from kafka_source.errors import InvalidConfigurationError

MOVED_FROM = "cluster.moved.from"
"""The option that allows a move to another cluster: the id of the cluster the topics were migrated from."""


def check_same_cluster(known: str | None, found: str | None, *, servers: str, moved_from: str | None) -> None:
    """Check that the cluster is the one the offsets came from, or that the user has allowed the move.

    Args:
        known: The id of the cluster that the offsets came from; None: unknown.
        found: The id of the cluster that answers now; None: its brokers send no id.
        servers: `bootstrap.servers`, for the message.
        moved_from: The value of the option `cluster.moved.from`; None: not set.

    Raises:
        InvalidConfigurationError: It is another cluster; the message contains both ids.
    """
    if known is None or found is None or known in (found, moved_from):
        return
    raise InvalidConfigurationError(
        f"The offsets of this query came from cluster {known}, but kafka.bootstrap.servers={servers} now leads to the "
        f"cluster {found}, where they are not valid. Correct the servers, or start with a new checkpointLocation. If "
        f"the topics were migrated there with their offsets, set {MOVED_FROM}={known}."
    )
