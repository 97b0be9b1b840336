"""The topics that match `subscribePattern`, for a query without a group and for the leader of a group."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_source.errors import OptionError
from kafka_source.runtime.bounded_search import SearchTooLong, search

# Kafka's internal topics (`org.apache.kafka.common.internals.Topic`).
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# Processor time for all new names of a lookup. 100,000 names take a tenth of a second with a harmless pattern.
_SECONDS = 5
_MOST_PATTERNS = 16
# Whether the topics of the last lookup match, by pattern and name. The inner mappings do not change: queries and event
# loops of one process look topics up at the same time.
_judged: dict[str, dict[str, bool]] = {}


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that contain a match of the pattern (Spark's semantics), sorted, without internal topics.

    It blocks while it judges names that it has not seen before, so an event loop calls it in a thread.

    Raises:
        OptionError: The pattern takes too long for one of the names.
    """
    wanted = sorted(set(names) - _INTERNAL)
    known = dict(_judged.get(pattern, {}))
    # Anybody who may create topics chooses their names, also one for which the pattern never ends.
    new = [name for name in wanted if name not in known]
    if new:
        try:
            known.update(zip(new, search(pattern, new, _SECONDS), strict=True))
        except SearchTooLong as error:
            raise OptionError(
                "subscribePattern",
                pattern,
                f"a pattern that can be decided for each topic; for topic {error.text} it takes longer than "
                f"{_SECONDS} s, because repetitions in it contain or follow each other. Write it so that a name can be "
                "read in one way only, for example ^[a-z-]+$ for ^([a-z]+-?)+$",
            ) from None
    _judged[pattern] = {name: known[name] for name in wanted}
    if len(_judged) > _MOST_PATTERNS:
        _judged.pop(next(iter(_judged)), None)
    return [name for name in wanted if known[name]]
