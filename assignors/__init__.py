"""Client-side partition assignors for Kafka consumer groups: pure functions on plain data.

The assignors need neither Spark nor a Kafka client: `load("sticky").assign(cluster, group)`.
"""

# Provisional names are re-exported by `name as name`, in the same statements as the public ones.
# ruff: noqa: I001

from assignors.interface import (
    ENTRY_POINT_GROUP as ENTRY_POINT_GROUP,
    AssignmentError,
    Assignor,
    RebalanceProtocol,
    check_handover as check_handover,
    hold_back as hold_back,
    in_transfer as in_transfer,
    load,
    names,
)
from assignors.model import (
    NO_GENERATION as NO_GENERATION,
    Assignment,
    ClusterMetadata,
    GroupSubscription,
    Measures,
    PartitionWork,
    Subscription,
    TopicPartition,
    TopicPartitions as TopicPartitions,
)
from assignors.wire import (
    StickyUserData as StickyUserData,
    WireFormatError as WireFormatError,
    decode_assignment as decode_assignment,
    decode_cooperative_user_data as decode_cooperative_user_data,
    decode_sticky_user_data as decode_sticky_user_data,
    decode_subscription as decode_subscription,
    encode_assignment as encode_assignment,
    encode_cooperative_user_data as encode_cooperative_user_data,
    encode_sticky_user_data as encode_sticky_user_data,
    encode_subscription as encode_subscription,
)

__all__ = [
    "Assignment",
    "AssignmentError",
    "Assignor",
    "ClusterMetadata",
    "GroupSubscription",
    "Measures",
    "PartitionWork",
    "RebalanceProtocol",
    "Subscription",
    "TopicPartition",
    "load",
    "names",
]
