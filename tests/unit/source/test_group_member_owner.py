"""Which partitions a query's slots own."""

from assignors.model import TopicPartition
from kafka_source.group.model import GroupAssignment, SlotAssignment
from kafka_source.model.credentials import SlotCredentials
from kafka_source.source.group_member_owner import owned_by


def test_primaries_or_all_copies_are_owned():
    t0, t1, t2 = (TopicPartition("t", n) for n in range(3))
    slots = (slot(0, (t0, t1), {t0: 1}), slot(1, (t0, t1, t2), {t1: 1, t2: 2}))
    primaries = owned_by(GroupAssignment(4, "redundant", True, slots), all_copies=False)
    assert (primaries.slots, primaries.copies) == ({t1: 0, t0: 1}, {})
    everything = owned_by(GroupAssignment(4, "redundant", True, slots), all_copies=True)
    assert everything.copies == {t0: ((1, 0), (0, 1)), t1: ((0, 0), (1, 1)), t2: ((1, 2),)}
    assert everything.slots == {t0: 1, t1: 0, t2: 1}
    assert [tp for tp in (t0, t1, t2, TopicPartition("t", 3)) if everything.commits(tp)] == [t0, t1]


def slot(number, partitions, replicas):
    return SlotAssignment(SlotCredentials("g", 4, f"m-{number}", None, number, partitions), partitions, None, replicas)
