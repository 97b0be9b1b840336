"""The assignors in the form in which the shared vectors' `check.py` calls an implementation."""

from collections.abc import Mapping, Sequence
from typing import Any

from assignors import ClusterMetadata, Subscription, TopicPartitions, load
from assignors.wire import encode_cooperative_user_data, encode_sticky_user_data

_NAMES = {"copartitioned": "copartition"}
_OWNED_IN_USER_DATA = {"sticky", "rack-aware"}


def assign(
    assignor: str,
    topics: Mapping[str, int],
    racks: Mapping[str, Sequence[Sequence[str]]] | None,
    members: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, list[list[Any]]]:
    """One round: what each member says goes in as a real member would send it."""
    name = _NAMES.get(assignor, assignor)
    options = {"mismatch": "colocate", **options} if name == "copartition" else options
    group = {member["id"]: subscription(name, member) for member in members}
    answer = load(name, options).assign(ClusterMetadata(topics, racks or {}), group)
    columns = {member: TopicPartitions.from_pairs(given.partitions) for member, given in answer.items()}
    return {member: list(map(list, zip(given.topics, given.numbers, strict=True))) for member, given in columns.items()}


def subscription(name: str, member: Mapping[str, Any]) -> Subscription:
    """A vector's member as its Subscription, of the version it says."""
    version, generation = member.get("version", 3), member.get("generation", -1)
    pairs = member.get("owned") or ()
    owned = TopicPartitions([topic for topic, _ in pairs], [number for _, number in pairs])
    user_data: bytes | None = None
    if name in _OWNED_IN_USER_DATA and "owned" in member:
        user_data = encode_sticky_user_data(owned, None if member.get("userdata") == "v0" else generation)
    elif name == "cooperative-sticky":
        user_data = encode_cooperative_user_data(generation)
    return Subscription(
        topics=tuple(member["topics"]),
        user_data=user_data,
        owned=owned if version >= 1 else (),
        generation=generation if version >= 2 else -1,
        rack=member.get("rack") if version >= 3 else None,
        instance_id=member.get("instance_id"),
    )
