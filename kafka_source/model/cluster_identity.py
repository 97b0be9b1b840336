"""One cluster or another: offsets of the one mean nothing in the other, so a query that meets another one stops."""

from __future__ import annotations

from kafka_source.errors import InvalidConfigurationError

MOVED_FROM = "cluster.moved.from"
"""The option that names a move to another cluster as wanted: the id of the one that was left."""


def check_same_cluster(known: str | None, found: str | None, *, servers: str, moved_from: str | None) -> None:
    """Let the cluster that was known go by, and another one only if it is to be so.

    Args:
        known: The id of the cluster that the offsets are of; None: not known.
        found: The id of the one that answers now; None: it does not tell.
        servers: `bootstrap.servers`, for the message.
        moved_from: Of the option.

    Raises:
        InvalidConfigurationError: It is another cluster; with both ids.
    """
    if known is None or found is None or known in (found, moved_from):
        return
    raise InvalidConfigurationError(
        f"The offsets of this query are of cluster {known}, but kafka.bootstrap.servers={servers} now leads to the "
        f"cluster {found}, where they mean nothing. Correct the servers, or start with a new checkpointLocation. If "
        f"the topics were moved there with their offsets, set {MOVED_FROM}={known}."
    )
