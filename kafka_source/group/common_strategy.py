"""Members whose strategies have none in common: what each of them offers, and whom the leader refuses. Pure.

A coordinator refuses a member that has no protocol in common with the group. It cannot refuse our streams: they all
offer `rewind.PROTOCOL`, behind their strategies. So the coordinator starts a generation with that protocol, as if the
group was rewound, and its leader refuses in the coordinator's place. For that, each member says in its offer of the
protocol which strategies it has, and under which one it is a member already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from assignors import Assignment, encode_assignment
from kafka_source.group.model import GroupMember

_VERSION = 1
# What other members send is not trusted: it is in log lines, and every leader parses it.
_MOST_BYTES = 4096
_MOST_NAMES = 100
_LONGEST_NAME = 249
_MOST_NAMED = 5

_REFUSED = b"kafkagroup:refused:"
_OTHERS_REFUSED = b"kafkagroup:others-refused:"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a member says of itself.

    Attributes:
        strategies: Its strategies in order of preference. Empty: it has none, because it only rewinds the group, or it
            does not say; such a member is never refused.
        present: The strategy under which it was a member when it joined again; None: it was no member.
    """

    strategies: tuple[str, ...] = ()
    present: str | None = None

    def to_bytes(self) -> bytes:
        """Return the offer as the user data of a subscription."""
        said = {"version": _VERSION, "strategies": self.strategies, "present": self.present}
        return json.dumps(said, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Offer:
        """Return what a member has sent; an empty offer if it is in no known format."""
        if data is None or len(data) > _MOST_BYTES:
            return cls()
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(said, dict) or said.get("version") != _VERSION:
            return cls()
        strategies, present = said.get("strategies"), said.get("present")
        if not isinstance(strategies, list) or len(strategies) > _MOST_NAMES or not all(map(_is_name, strategies)):
            return cls()
        return cls(tuple(strategies), present if present in strategies else None)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def kept(offers: Mapping[str, Offer]) -> str | None:
    """Return the strategy that the group keeps; None: no member has one.

    Members of the group come before newcomers. It is the strategy that most of those support that are members already,
    or of all if nobody is; of several the one that most newcomers support too, then the present one, then the first by
    name. So every leader decides the same.
    """
    having = [offer for offer in offers.values() if offer.strategies]
    inside = [offer for offer in having if offer.present is not None] or having

    def weight(name: str) -> tuple[int, int, int]:
        return (
            sum(name in offer.strategies for offer in inside),
            sum(name in offer.strategies for offer in having),
            sum(name == offer.present for offer in inside),
        )

    return max(sorted({name for offer in inside for name in offer.strategies}), key=weight, default=None)


def refused(offers: Mapping[str, Offer]) -> dict[str, str]:
    """Return the members to refuse, by member id, each with the reason; empty if all have a strategy in common."""
    strategy = kept(offers)
    foreign = {one: offer for one, offer in offers.items() if offer.strategies and strategy not in offer.strategies}
    lists = sorted({offer.strategies for one, offer in offers.items() if offer.strategies and one not in foreign})
    others = "; ".join(map(", ".join, lists[:_MOST_NAMED]))
    return {
        one: f"it offers {', '.join(offer.strategies)}, and the group uses {strategy}; other members offer {others}"
        for one, offer in foreign.items()
    }


def assignments(members: Mapping[GroupMember, Offer]) -> dict[str, bytes]:
    """Return the leader's assignment for a generation with `rewind.PROTOCOL`, by member id: nobody reads.

    Members that are refused get the reason, and the others who it is.
    """
    reasons = refused({member.member_id: offer for member, offer in members.items()})
    names = [
        f"{member.instance_id or member.member_id} ({reasons[member.member_id]})"
        for member in members
        if member.member_id in reasons
    ]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    note = _OTHERS_REFUSED + (", ".join(names[:_MOST_NAMED]) + more).encode() if names else None
    return {
        member_id: encode_assignment(
            Assignment((), _REFUSED + reasons[member_id].encode() if member_id in reasons else note)
        )
        for member_id in (member.member_id for member in members)
    }


def why_refused(assignment: Assignment) -> str | None:
    """Return why the leader has refused the member that got this assignment; None: it has not."""
    return _text(assignment, _REFUSED)


def others_refused(assignment: Assignment) -> str | None:
    """Return whom the leader has refused instead of the member that got this assignment; None: nobody."""
    return _text(assignment, _OTHERS_REFUSED)


def _text(assignment: Assignment, prefix: bytes) -> str | None:
    data = assignment.user_data
    if data is None or not data.startswith(prefix):
        return None
    text = data[len(prefix) : len(prefix) + _MOST_BYTES].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)
