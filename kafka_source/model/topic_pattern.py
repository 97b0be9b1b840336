"""Which topics the option `subscribePattern` means, for a reader alone as for the leader of a group."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Kafka's own (`org.apache.kafka.common.internals.Topic`).
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names, sorted, in which the expression is found, as Spark looks for it; never those of Kafka's own topics."""
    expression = re.compile(pattern)
    return sorted(name for name in names if name not in _INTERNAL and expression.search(name))
