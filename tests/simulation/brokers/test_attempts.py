"""Simultaneous attempts of an exactly-once sink's tasks, with simulated coordinators: each has an id of its own."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.kafka_client.messages.transaction import InitProducerIdRequest
from kafka_source.produce.records import Records
from tests.support.native import kernel

# Sinks write with the native engine.
kernel()

from kafka_source.sink.two_phase.committer import DriverEpoch, TwoPhaseCommit  # noqa: E402
from kafka_source.sink.two_phase.open_transactions import has_prefix  # noqa: E402
from kafka_source.sink.two_phase.prepare import IDS_OF_TASK, Prepared, SinkTask, prepare  # noqa: E402
from tests.simulation.brokers.cluster import Broker, Cluster, Reply  # noqa: E402
from tests.simulation.brokers.group_coordinator import GroupCoordinators  # noqa: E402
from tests.simulation.brokers.transaction_coordinator import ONGOING, TransactionCoordinators  # noqa: E402
from tests.simulation.world import World  # noqa: E402

EPOCHS = 32_767
TURNS = st.integers(0, EPOCHS - 1)
RECORDS = Records(pa.array([b'["a"]'], pa.binary()), None, "copies", None)


class Brokers:
    """Simulated brokers and the driver of a sink."""

    def __init__(self, transaction_version: int, seed: int = 0) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, 3)
        self.cluster.transaction_version = transaction_version
        self.cluster.create_topic("copies", 1)
        self.transactions = TransactionCoordinators(self.cluster, GroupCoordinators(self.cluster))
        self.settings = Settings({"bootstrap.servers": self.cluster.bootstrap_servers})

    def begin(self) -> DriverEpoch:
        """Begin a batch."""
        begun = self.world.process("driver").call(self.begin_here)
        self.world.run(self.world.now + 60, done=lambda: begun.done)
        return begun.result()

    def begin_here(self) -> DriverEpoch:
        """Begin a batch in the current process."""
        client = cached_client(self.settings)
        return client.run(TwoPhaseCommit(client, "sink").begin(Deadline(60)))

    def prepare(self, epoch: DriverEpoch, task: int, batches: Iterable[Records] = (RECORDS,)) -> Prepared:
        return prepare(self.settings, SinkTask("sink", "q", 0, task), epoch, batches)

    def attempt(self, epoch: DriverEpoch, batches: Iterable[Records] = (RECORDS,)) -> Prepared:
        """An attempt of a task, in a process of its own, to its end."""
        attempt = self.world.process("worker").call(lambda: self.prepare(epoch, 0, batches))
        self.world.run(self.world.now + 100, done=lambda: attempt.done)
        return attempt.result()


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
    brokers = Brokers(version, seed)
    world, done = brokers.world, list[Prepared]()

    def start(epoch: DriverEpoch, task: int, request: int, seconds: float) -> None:
        worker = world.process("worker")
        worker.before(InitProducerIdRequest.API_KEY, lambda: worker.freeze(seconds), skip=request)
        worker.start(lambda: done.append(brokers.prepare(epoch, task)))

    with world.installed():
        epoch = brokers.begin()
        for task, at, request, seconds in attempts:
            world.after(at, lambda one=(task, request, seconds): start(epoch, *one))
        if lost is not None:
            world.after(lost, lambda: brokers.cluster.lose_once(InitProducerIdRequest.API_KEY))
        world.run(world.now + 60, done=lambda: len(done) == len(attempts))
        world.run(world.now + 5)
    prepared = [one.transaction for one in done if one.transaction is not None]
    assert len({one.transactional_id for one in prepared}) == len(attempts)
    for one in prepared:
        found = brokers.transactions.transactions[one.transactional_id]
        assert (found.state, found.producer_id, found.epoch) == (ONGOING, one.producer_id, one.epoch)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("has_sent", [False, True])
def test_an_attempt_that_fails_gives_its_id_back(version: int, has_sent: bool) -> None:
    brokers = Brokers(version)

    def fails() -> Iterator[Records]:
        yield RECORDS
        if has_sent:
            brokers.world.sleep(1)
            yield RECORDS
        raise RuntimeError("bad row")

    with brokers.world.installed():
        epoch = brokers.begin()
        for _ in range(2 * IDS_OF_TASK):
            with pytest.raises(RuntimeError, match="bad row"):
                brokers.attempt(epoch, fails())
        assert (brokers.cluster.requests["Produce"] > 0) is has_sent
        assert brokers.attempt(epoch).transaction is not None
        assert brokers.world.now < 20


@pytest.mark.parametrize("version", [1, 2])
def test_an_attempt_without_a_free_id_names_the_ids_and_who_begins_later_has_them(version: int) -> None:
    brokers = Brokers(version)
    with brokers.world.installed():
        epoch = brokers.begin()
        for _ in range(IDS_OF_TASK):
            # As an attempt that is killed with its transaction open.
            brokers.attempt(epoch)
        before = brokers.cluster.requests["InitProducerId"]
        with pytest.raises(ApplicationRecoverableError, match=r"sink-0-0 \(Ongoing\), .*sink-0-6 \(Ongoing\)"):
            brokers.attempt(epoch)
        assert brokers.cluster.requests["InitProducerId"] == before + IDS_OF_TASK
        assert brokers.attempt(brokers.begin()).transaction is not None


@pytest.mark.parametrize("version", [1, 2])
def test_a_driver_that_fences_attempts_leaves_the_transactions_of_a_later_driver_alone(version: int) -> None:
    """A coordinator loses the request that fences, and the driver repeats the request when it is no longer current."""
    brokers = Brokers(version)
    world, handlers = brokers.world, brokers.cluster.handlers
    handle = handlers[InitProducerIdRequest]
    with world.installed():
        left = brokers.attempt(brokers.begin()).transaction
        assert left is not None

        def lose(broker: Broker, request: InitProducerIdRequest, reply: Reply) -> None:
            if request.transactional_id == left.transactional_id:
                handlers[InitProducerIdRequest] = handle
            else:
                handle(broker, request, reply)

        handlers[InitProducerIdRequest] = lose
        earlier = world.process("earlier driver").call(brokers.begin_here)
        world.run(world.now + 5)
        epoch = brokers.begin()
        prepared = [brokers.attempt(epoch).transaction for _ in range(IDS_OF_TASK)]
        assert not earlier.done
        world.run(world.now + 60, done=lambda: earlier.done)
    assert left.transactional_id in {one.transactional_id for one in prepared if one is not None}
    for one in prepared:
        assert one is not None
        found = brokers.transactions.transactions[one.transactional_id]
        assert (found.state, found.epoch) == (ONGOING, one.epoch)
