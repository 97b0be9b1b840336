"""Administration of consumer groups and topics, and of the checkpoints of queries."""

from typing import TYPE_CHECKING

from kafka_source.model.halt import Halt
from kafka_source.model.rewind_target import AtOffset, AtOffsets, AtTime, ByDuration, FromGroup, Move, Shift
from kafkagroup.admin.groups import Groups
from kafkagroup.admin.halts import Halted, Stand, halt_of_group, idle_queries, pause, resume, stop, wait_until_halted
from kafkagroup.admin.offsets_document import OffsetsDocument
from kafkagroup.admin.rows import Group, GroupSummary, MemberDescription, PartitionLag, Rows
from kafkagroup.admin.rows import UserData as UserData
from kafkagroup.admin.running_group import RunningRewind, rewind_running_group
from kafkagroup.admin.topics import BrokerSummary, PartitionSummary, Topics, TopicSummary

if TYPE_CHECKING:
    from kafkagroup.admin.dead_letters import Redriven, redrive

__all__ = [
    "AtOffset",
    "AtOffsets",
    "AtTime",
    "BrokerSummary",
    "ByDuration",
    "FromGroup",
    "Group",
    "GroupSummary",
    "Groups",
    "Halt",
    "Halted",
    "MemberDescription",
    "Move",
    "OffsetsDocument",
    "PartitionLag",
    "PartitionSummary",
    "Redriven",
    "Rows",
    "RunningRewind",
    "Shift",
    "Stand",
    "TopicSummary",
    "Topics",
    "halt_of_group",
    "idle_queries",
    "pause",
    "redrive",
    "resume",
    "rewind_running_group",
    "stop",
    "wait_until_halted",
]


def __getattr__(name: str) -> object:
    # `dead_letters` loads pyarrow, which the other calls do not need.
    if name in ("Redriven", "redrive"):
        from kafkagroup.admin import dead_letters

        return getattr(dead_letters, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
