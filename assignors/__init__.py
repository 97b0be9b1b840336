"""Client-side partition assignors for Kafka consumer groups: pure functions on plain data.

Usable without Spark and without any Kafka client: `load("sticky").assign(cluster, group)`.
"""

from assignors.interface import (
    ENTRY_POINT_GROUP,
    AssignmentError,
    Assignor,
    RebalanceProtocol,
    check_handover,
    hold_back,
    in_transfer,
    load,
    names,
)
from assignors.measures import Measures
from assignors.model import (
    NO_GENERATION,
    Assignment,
    ClusterMetadata,
    GroupSubscription,
    PartitionWork,
    Subscription,
    TopicPartition,
    TopicPartitions,
)
from assignors.wire import (
    StickyUserData,
    WireFormatError,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)

__all__ = [
    "ENTRY_POINT_GROUP",
    "NO_GENERATION",
    "Assignment",
    "AssignmentError",
    "Assignor",
    "ClusterMetadata",
    "GroupSubscription",
    "Measures",
    "PartitionWork",
    "RebalanceProtocol",
    "StickyUserData",
    "Subscription",
    "TopicPartition",
    "TopicPartitions",
    "WireFormatError",
    "check_handover",
    "decode_assignment",
    "decode_cooperative_user_data",
    "decode_sticky_user_data",
    "decode_subscription",
    "encode_assignment",
    "encode_cooperative_user_data",
    "encode_sticky_user_data",
    "encode_subscription",
    "hold_back",
    "in_transfer",
    "load",
    "names",
]
