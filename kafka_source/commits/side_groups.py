"""Side groups (groups without members that keep state as committed offsets): their names and contents.

All side groups are private: their lag is meaningless, and `kafkagroup groups` omits them. The offsets of side groups
lie beyond the end of any log, so that lag monitors see no lag. Each name begins with the owner's name, so a prefixed
ACL covers the side groups.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

BEYOND_ALL_LOGS = 10**15
"""Added to the offsets of side groups.

A partition with a million records a second reaches this offset after 31 years. JSON's doubles hold it exactly.
"""

# A query's id has dashes; the ids of a stream and of a run's driver have no dashes.
_ID, _NUMBER = "[0-9a-f-]{32,36}", r"\d+"


@dataclass(frozen=True, slots=True)
class SideGroup:
    """A kind of side group.

    Attributes:
        suffix: The part of the name after the owner's name; {} stands for an id.
        id: The regular expression of the id; empty: the name has no id.
        offset: What a committed offset means after `BEYOND_ALL_LOGS` is subtracted.
        codec: The module under `kafka_source` that writes and reads the offsets and their metadata.
    """

    suffix: str
    id: str
    offset: str
    codec: str

    def of(self, owner: str, id_: object = "") -> str:
        """Return the side group's name; the owner is a sink's `transactional.id.prefix`, or a group."""
        return f"{owner}{self.suffix.format(id_)}"


LEDGER = SideGroup("-ledger", "", "a decision's number", "sink.two_phase.ledger")
LEDGER_PART = SideGroup("-ledger-{}", _NUMBER, "a decision's number", "sink.two_phase.ledger")
FINISHED = SideGroup("-finished", "", "a decision's number", "sink.two_phase.ledger")
READ_BY = SideGroup("-read-by-{}", _ID, "the end of a range that a batch reads", "commits.handoff")
REJOINED = SideGroup("-rejoined-{}", _ID, "the end of a batch's range", "commits.rights")
ASKED = SideGroup("-rejoined-{}-asked", _ID, "a generation", "commits.rights")
IDLE = SideGroup("-kafkagroup-idle", "", "0: its metadata says which halt a query obeys", "commits.halts")
HALT = SideGroup("-kafkagroup-halt", "", "a boundary; 0: there is none", "commits.halts")

SIDE_GROUPS = (LEDGER, LEDGER_PART, FINISHED, READ_BY, REJOINED, ASKED, IDLE, HALT)

PATTERN = f"^.+({'|'.join(one.suffix.format(one.id) for one in SIDE_GROUPS)})$"
"""Matches the names of side groups, for lag monitors."""

_OF_LEDGER = re.compile(rf"(.+)({LEDGER.suffix}|{LEDGER_PART.suffix.format(_NUMBER)}|{FINISHED.suffix})")


def beyond(offset: int) -> int:
    """Return an offset plus `BEYOND_ALL_LOGS`, as a side group has it."""
    return BEYOND_ALL_LOGS + offset


def within(offset: int) -> int:
    """Return a side group's offset minus `BEYOND_ALL_LOGS`."""
    return offset % BEYOND_ALL_LOGS


def private_groups(names: Iterable[str]) -> frozenset[str]:
    """Return the side groups among these groups; a ledger counts only if both of its groups exist."""
    every = frozenset(names)
    found = set()
    for name in every:
        of_ledger = _OF_LEDGER.fullmatch(name)
        if of_ledger is None:
            found |= {name} if re.fullmatch(PATTERN, name) else set()
        elif {LEDGER.of(of_ledger[1]), FINISHED.of(of_ledger[1])} <= every:
            found.add(name)
    return frozenset(found)
