"""Simultaneous attempts of an exactly-once sink's tasks, with simulated coordinators: each has an id of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.kafka_client.messages.transaction import InitProducerIdRequest
from kafka_source.produce.records import Records
from tests.support.native import kernel

# Sinks write with the native engine.
kernel()

from kafka_source.sink.two_phase.committer import DriverEpoch, TwoPhaseCommit  # noqa: E402
from kafka_source.sink.two_phase.open_transactions import has_prefix  # noqa: E402
from kafka_source.sink.two_phase.prepare import IDS_OF_TASK, Prepared, SinkTask, prepare  # noqa: E402
from tests.simulation.brokers.cluster import Cluster  # noqa: E402
from tests.simulation.brokers.group_coordinator import GroupCoordinators  # noqa: E402
from tests.simulation.brokers.transaction_coordinator import ONGOING, TransactionCoordinators  # noqa: E402
from tests.simulation.world import World  # noqa: E402

EPOCHS = 32_767
TURNS = st.integers(0, EPOCHS - 1)


@given(TURNS, st.lists(st.integers(0, IDS_OF_TASK - 1), min_size=2, max_size=2, unique=True))
def test_of_the_turns_that_follow_each_other_no_two_have_one_id(first: int, later: Sequence[int]) -> None:
    """A producer id has 32,767 epochs; the next producer id begins with epoch 0."""
    task = SinkTask("orders", "q", 0, 3)
    one, other = (task.transactional_id((first + turn) % EPOCHS) for turn in later)
    assert one != other


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=2, unique=True), TURNS, TURNS)
def test_tasks_share_no_id(tasks: Sequence[int], turn: int, other: int) -> None:
    a, b = (SinkTask("orders", "q", 0, number) for number in tasks)
    assert a.transactional_id(turn) != b.transactional_id(other)
    assert has_prefix(a.transactional_id(turn), "orders")
    assert not has_prefix(a.turns, "orders")


# For each attempt: its task, its beginning, the InitProducerId before which it is suspended, and for how long. An
# attempt whose request is lost takes another turn, and the eighth turn has the first id again.
ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 1), st.floats(0, 0.5), st.integers(0, 1), st.floats(0, 2)),
    min_size=2,
    max_size=IDS_OF_TASK - 1,
)


@given(ATTEMPTS, st.sampled_from([1, 2]), st.one_of(st.none(), st.floats(0, 0.5)), st.integers(0, 5))
def test_attempts_that_are_alive_together_leave_each_others_transactions_alone(
    attempts: Sequence[tuple[int, float, int, float]], version: int, lost: float | None, seed: int
) -> None:
    """The coordinator may handle an InitProducerId after the request with which the client has replaced it."""
    world = World(seed)
    cluster = Cluster(world, 3)
    cluster.transaction_version = version
    cluster.create_topic("copies", 1)
    transactions = TransactionCoordinators(cluster, GroupCoordinators(cluster))
    settings = Settings({"bootstrap.servers": cluster.bootstrap_servers})
    done: list[Prepared] = []

    def begin() -> DriverEpoch:
        client = cached_client(settings)
        return client.run(TwoPhaseCommit(client, "sink").begin(Deadline(30)))

    def start(epoch: DriverEpoch, task: int, request: int, seconds: float) -> None:
        worker = world.process("worker")
        worker.before(InitProducerIdRequest.API_KEY, lambda: worker.freeze(seconds), skip=request)
        records = Records(pa.array([b'["a"]'], pa.binary()), None, "copies", None)
        worker.start(lambda: done.append(prepare(settings, SinkTask("sink", "q", 0, task), epoch, [records])))

    with world.installed():
        begun = world.process("driver").call(begin)
        world.run(60, done=lambda: begun.done)
        for task, at, request, seconds in attempts:
            world.after(at, lambda one=(task, request, seconds): start(begun.result(), *one))
        if lost is not None:
            world.after(lost, lambda: cluster.lose_once(InitProducerIdRequest.API_KEY))
        world.run(world.now + 60, done=lambda: len(done) == len(attempts))
        world.run(world.now + 5)
    prepared = [one.transaction for one in done if one.transaction is not None]
    assert len({one.transactional_id for one in prepared}) == len(attempts)
    for one in prepared:
        found = transactions.transactions[one.transactional_id]
        assert (found.state, found.producer_id, found.epoch) == (ONGOING, one.producer_id, one.epoch)
