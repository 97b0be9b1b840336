"""The topics that match `subscribePattern`, for a query without a group and for the leader of a group."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Kafka's internal topics (`org.apache.kafka.common.internals.Topic`).
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that contain a match of the pattern (Spark's semantics), sorted, without internal topics."""
    expression = re.compile(pattern)
    return sorted(name for name in names if name not in _INTERNAL and expression.search(name))
