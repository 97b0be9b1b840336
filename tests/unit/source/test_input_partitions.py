"""Every planned range is in exactly one task, with its slot's credentials and its share of the quota."""

from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import PlannedInput, Range
from kafka_source.quota.bounds import Bounds, QuotaSettings, Ticket
from kafka_source.runtime.control_port import Address
from kafka_source.source.read_task import TaskFactory, bundle_tasks

QUOTA = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 10, 1.0, None, None, "orders")
IDS = {"t": "id-of-t", "u": "id-of-u"}


def member(slot: int) -> SlotCredentials | None:
    return None if slot < 0 else SlotCredentials("g", 3, f"m-{slot}", f"i-{slot}", slot=slot)


def ticket(part: int, share: float) -> Ticket:
    return Ticket(QUOTA, QUOTA.bounds, Address("127.0.0.1", 1, "secret"), part, share)


FACTORY = TaskFactory(member, "a-cluster", IDS)


@st.composite
def plans(draw) -> list[PlannedInput]:
    """Inputs of slots, or of no group; no partition twice."""
    in_group = draw(st.booleans())
    inputs = []
    for number, sizes in enumerate(draw(st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=3), max_size=8))):
        ranges = tuple(Range("t" if n else "u", number, 100 * n, 100 * n + size) for n, size in enumerate(sizes))
        inputs.append(PlannedInput(number if in_group else -1, ranges))
    return inputs


@given(plans(), st.integers(1, 3000))
def test_each_range_is_read_once_as_its_slot(planned, min_offsets):
    found = bundle_tasks(planned, FACTORY, min_offsets=min_offsets, ticket=ticket)
    tasks = [task for bundle in found for task in bundle.tasks]
    assert sorted(r for task in tasks if task.credentials is None for r in task.ranges) == sorted(
        r for one in planned if one.slot < 0 for r in one.ranges
    )
    assert {task.credentials.slot: task.ranges for task in tasks if task.credentials is not None} == {
        one.slot: one.ranges for one in planned if one.slot >= 0
    }
    assert all(task.cluster == "a-cluster" for task in tasks)
    assert all(task.topics == {r.topic: IDS[r.topic] for r in task.ranges} for task in tasks)
    assert not any(bundle.handoffs for bundle in found)


@given(plans(), st.integers(1, 3000))
def test_the_shares_of_the_quota_are_those_of_the_offsets_and_no_two_tasks_have_one_number(planned, min_offsets):
    tasks = [
        t for bundle in bundle_tasks(planned, FACTORY, min_offsets=min_offsets, ticket=ticket) for t in bundle.tasks
    ]
    total = sum(one.size for one in planned)
    tickets = [task.ticket for task in tasks if task.ticket is not None]
    assert len(tickets) == len(tasks)
    assert [t.share for t in tickets] == [sum(r.size for r in task.ranges) / total for task in tasks]
    assert len({t.slot for t in tickets}) == len(tasks)
    parts = [(t.ticket.slot, t.credentials.slot) for t in tasks if t.ticket is not None and t.credentials is not None]
    assert all(part == slot for part, slot in parts)


class LookupsOnly(dict[TopicPartition, str]):
    """A mapping of a query with very many partitions: nobody may walk over it for each task."""

    def __iter__(self):
        raise AssertionError("a task walks over all partitions of the query")

    items = keys = values = __iter__


def test_a_task_knows_the_rewinds_of_its_own_partitions_and_looks_at_no_others():
    rewinds = LookupsOnly({TopicPartition("t", 0): "first", TopicPartition("t", 7): "second"})
    factory = TaskFactory(member, None, IDS, rewinds)
    task = factory.task(PlannedInput(0, (Range("t", 0, 0, 9), Range("t", 1, 0, 9))))
    assert task.rewinds == {TopicPartition("t", 0): "first"}


def test_without_a_quota_no_task_has_a_ticket():
    (bundle,) = bundle_tasks([PlannedInput(0, (Range("t", 0, 0, 9),))], FACTORY, min_offsets=1, ticket=None)
    assert [task.ticket for task in bundle.tasks] == [None]
