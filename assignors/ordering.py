"""Sort orders that decide ties, the same as Java's, so that the result does not depend on which client leads."""

from __future__ import annotations

from collections.abc import Iterable

from assignors.model import GroupSubscription


def sorted_names(names: Iterable[str]) -> list[str]:
    """Sort names as Java's `String.compareTo` does: by UTF-16 code units, where Python compares code points."""
    found = list(names)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=_utf16)


def static_members_first(group: GroupSubscription) -> list[str]:
    """Sort member ids: static members by instance id, then the others by member id (Java's `MemberInfo.compareTo`)."""
    static = [(member, instance) for member in group if (instance := group[member].instance_id) is not None]
    dynamic = [member for member in group if group[member].instance_id is None]
    in_order = sorted(static, key=lambda pair: (_utf16(pair[1]), _utf16(pair[0])))
    return [member for member, _ in in_order] + sorted_names(dynamic)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
