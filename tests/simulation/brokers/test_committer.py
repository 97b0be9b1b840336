"""The source's commits in both protocols of KIP-890, with simulated coordinators that count the requests."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, InvalidConfigurationError, UnknownOutcomeError, UnknownTopicError
from kafka_source.group.requests import fetch_entries
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient, cached_client, text_of_id
from kafka_source.kafka_client.messages.transaction import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.transactions.offset_committer import FetchEntries, TransactionalCommitter
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import has_second_protocol, initialise, is_gone
from tests.support.native import kernel

# The simulated world has the native producer.
kernel()

from tests.simulation.brokers import cluster as cluster_module  # noqa: E402
from tests.simulation.brokers.cluster import Broker, Cluster, Reply  # noqa: E402
from tests.simulation.brokers.group_coordinator import STABLE, GroupCoordinators, Member  # noqa: E402
from tests.simulation.brokers.transaction_coordinator import TransactionCoordinators  # noqa: E402
from tests.simulation.world import World  # noqa: E402

GROUP_ID, NAME, TP = "billing", "billing-orders-0", TopicPartition("orders", 0)
MEMBER = SlotCredentials(GROUP_ID, 1, "m", None)
OTHER = uuid.UUID(int=9)


class Brokers:
    """Simulated brokers with a group of one member.

    Attributes:
        versions: The name and version of each request about transactions that the coordinators got.
    """

    def __init__(self, transaction_version: int, *, max_epoch: int = 32_767, brokers: int = 1) -> None:
        self.world = World(7)
        self.cluster = Cluster(self.world, brokers)
        self.cluster.transaction_version = transaction_version
        self.cluster.create_topic(TP.topic, 1)
        self.groups = GroupCoordinators(self.cluster)
        self.transactions = TransactionCoordinators(self.cluster, self.groups)
        self.transactions.max_epoch = max_epoch
        self.group = self.groups.group(GROUP_ID)
        self.group.generation, self.group.state = 1, STABLE
        self.group.members["m"] = Member("m", None, "client", 1e9, 1e9, [])
        self.versions: list[tuple[str, int]] = []
        for request in (InitProducerIdRequest, TxnOffsetCommitRequest, EndTxnRequest):
            self.cluster.handlers[request] = self._noted(self.cluster.handlers[request])

    def _noted(self, handle: Callable[[Broker, Any, Reply], None]) -> Callable[[Broker, Any, Reply], None]:
        def handles(broker: Broker, request: Any, reply: Reply) -> None:
            self.versions.append((type(request).__name__.removesuffix("Request"), self.cluster.version))
            handle(broker, request, reply)

        return handles

    def committer(self, attempt: FetchEntries | None = None) -> TransactionalCommitter:
        settings = Settings({"bootstrap.servers": self.cluster.bootstrap_servers})
        return TransactionalCommitter(settings, NAME, attempt=attempt)

    def commit(
        self, committer: TransactionalCommitter, offset: int, topic_id: uuid.UUID | None = None, *, note: str = ""
    ) -> None:
        self.ask(committer, offset, topic_id, note=note)
        assert self.group.uncertain or self.committed() == offset

    def ask(
        self, committer: TransactionalCommitter, offset: int, topic_id: uuid.UUID | None = None, *, note: str = ""
    ) -> None:
        known = self.cluster.topics[TP.topic].id if topic_id is None else topic_id
        committer.commit_as([(MEMBER, {TP: CommitOffset(offset, metadata=note, topic_id=text_of_id(known))})])

    def settle(self) -> None:
        """Wait until markers are written and work in the background is done."""
        self.world.sleep(1.0)

    def committed(self) -> int:
        return self.group.offsets[TP.topic, TP.partition].offset

    def play(self, work: Callable[[], None]) -> None:
        """Run a client in a process of its own."""
        done: list[bool] = []
        failed: list[BaseException] = []

        def main() -> None:
            try:
                work()
            except Exception as error:
                failed.append(error)
            done.append(True)

        with self.world.installed():
            self.world.process("client").start(main)
            self.world.run(1e9, done=lambda: bool(done))
        if failed:
            raise failed[0]
        assert self.transactions.open() == []

    def forget_connections(self) -> None:
        """Cut all connections, so that clients request the features again."""
        for broker in self.cluster.brokers.values():
            for link in list(broker.links):
                link.cut()


@pytest.fixture(params=[1, 2])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    """Brokers with each protocol of KIP-890."""
    return Brokers(request.param)


def test_a_commit_is_two_requests_in_the_second_protocol_and_four_in_the_first() -> None:
    asked = {}
    for version in (1, 2):
        brokers = Brokers(version)

        def commits(brokers: Brokers = brokers) -> None:
            committer = brokers.committer()
            for offset in range(1, 6):
                brokers.commit(committer, offset)
                brokers.settle()
            assert brokers.committed() == 5

        brokers.play(commits)
        refused = brokers.cluster.errors["InitProducerId", ErrorCode.CONCURRENT_TRANSACTIONS]
        initialised = brokers.cluster.requests["InitProducerId"] - refused
        names = ("AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
        asked[version] = [initialised, *(brokers.cluster.requests[name] for name in names)]
        assert {("TxnOffsetCommit", 6), ("EndTxn", 5)} <= set(brokers.versions) or version == 1
    # In the first protocol the client requests the next epoch in the background, repeatedly while markers are written.
    assert asked == {1: [6, 5, 5, 5], 2: [1, 0, 5, 5]}


def test_commits_one_after_another_wait_for_the_markers_of_the_last_one() -> None:
    brokers = Brokers(2)

    def commits() -> None:
        committer = brokers.committer()
        for offset in range(1, 11):
            brokers.commit(committer, offset)
        # The markers take up to 20 ms, and retry.backoff.ms is 100.
        assert brokers.world.now < 1.0
        brokers.settle()
        assert brokers.committed() == 10

    brokers.play(commits)
    assert brokers.cluster.requests["InitProducerId"] == 1


def test_the_producer_id_changes_when_its_epochs_are_used_up() -> None:
    brokers = Brokers(2, max_epoch=4)
    ids = set()

    def commits() -> None:
        committer = brokers.committer()
        for offset in range(1, 15):
            brokers.commit(committer, offset)
            ids.add(brokers.transactions.transactions[NAME].producer_id)
        brokers.settle()
        assert brokers.committed() == 14

    brokers.play(commits)
    assert len(ids) > 3
    assert brokers.cluster.requests["InitProducerId"] == 1


@pytest.mark.parametrize("max_epoch", [32_767, 2])
@pytest.mark.parametrize("moves", [False, True])
def test_an_end_whose_answer_is_lost_is_repeated_in_the_same_epoch(moves: bool, max_epoch: int) -> None:
    brokers = Brokers(2, max_epoch=max_epoch, brokers=3)

    def commits() -> None:
        committer = brokers.committer()
        brokers.commit(committer, 1)
        brokers.settle()
        brokers.cluster.lose_answers(0.05, 1.0, moves=moves, only=EndTxnRequest.API_KEY)
        brokers.commit(committer, 2)
        brokers.settle()
        brokers.commit(committer, 3)
        brokers.settle()
        assert brokers.committed() == 3

    brokers.play(commits)
    assert brokers.cluster.requests["EndTxn"] > 3
    assert brokers.cluster.requests["InitProducerId"] == 1


def test_a_commit_whose_answer_is_lost_is_not_known_to_have_failed_where_another_one_takes_the_id(
    brokers: Brokers,
) -> None:
    end = brokers.cluster.handlers[EndTxnRequest]

    def handle_silently(broker: Broker, request: Any, _: Reply) -> None:
        brokers.cluster.handlers[EndTxnRequest] = end
        end(broker, request, lambda _: None)
        brokers.world.after(1.0, lambda: brokers.world.process("another program").start(take_id))

    def take_id() -> None:
        brokers.committer()
        brokers.settle()
        brokers.forget_connections()

    async def commit(client: KafkaClient) -> None:
        opened = await initialise(client, NAME, 60_000, Deadline(30))
        opened = replace(opened, second_protocol=await has_second_protocol(client, NAME, Deadline(30)))
        await commit_in(client, opened, [GroupOffsets(MEMBER, {TP: CommitOffset(5)})], Deadline(30))

    def commits() -> None:
        brokers.cluster.handlers[EndTxnRequest] = handle_silently
        client = cached_client(Settings({"bootstrap.servers": brokers.cluster.bootstrap_servers}))
        with pytest.raises(UnknownOutcomeError, match="PRODUCER_FENCED") as unknown:
            client.run(commit(client))
        # The sink's driver distinguishes lost transactions by this.
        assert is_gone(unknown.value)
        assert brokers.committed() == 5

    brokers.play(commits)


def test_the_protocol_is_chosen_for_each_commit() -> None:
    brokers = Brokers(1)

    def commits() -> None:
        committer = brokers.committer()
        for offset, version in enumerate((1, 2, 2, 1, 1, 2, 1), 1):
            brokers.cluster.transaction_version = version
            brokers.forget_connections()
            brokers.settle()
            brokers.commit(committer, offset)
            brokers.settle()
            assert brokers.committed() == offset

    brokers.play(commits)
    ends = [version for name, version in brokers.versions if name == "EndTxn"]
    assert ends == [3, 5, 5, 3, 3, 5, 3]
    assert [version for name, version in brokers.versions if name == "TxnOffsetCommit"] == [3, 6, 6, 3, 3, 6, 3]


def test_no_request_of_the_second_protocol_is_sent_in_an_earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has got EndTxn 5 does not answer, because an older broker replaces it."""
    brokers = Brokers(2)
    end = brokers.cluster.handlers[EndTxnRequest]

    def replaced(broker: Broker, request: Any, reply: Reply) -> None:
        if brokers.cluster.version < 5:
            end(broker, request, reply)
            return
        brokers.versions.append(("EndTxn", 5))
        monkeypatch.setitem(cluster_module._NEWEST, EndTxnRequest, 4)
        monkeypatch.setitem(cluster_module._NEWEST, TxnOffsetCommitRequest, 4)
        brokers.cluster.transaction_version = 1
        brokers.forget_connections()

    def commits() -> None:
        committer = brokers.committer()
        brokers.cluster.handlers[EndTxnRequest] = replaced
        # The outcome of the first try is unknown, and offsets are absolute.
        brokers.commit(committer, 1)
        brokers.settle()
        assert brokers.committed() == 1

    brokers.play(commits)
    assert [one for one in brokers.versions if one[0] == "EndTxn"] == [("EndTxn", 5), ("EndTxn", 3)]


def test_a_member_commits_though_a_late_request_has_taken_its_id(brokers: Brokers) -> None:
    def commits() -> None:
        first = brokers.committer()
        brokers.commit(first, 1)
        brokers.settle()
        second = brokers.committer()
        brokers.settle()
        for offset, committer in enumerate((first, second, second, first), 2):
            brokers.commit(committer, offset)
            brokers.settle()
            assert brokers.committed() == offset

    brokers.play(commits)


def test_a_committer_whose_member_the_group_has_replaced_commits_nothing(brokers: Brokers) -> None:
    def commits() -> None:
        first = brokers.committer()
        brokers.commit(first, 1)
        brokers.settle()
        brokers.committer()
        brokers.settle()
        brokers.group.generation += 1
        with pytest.raises(FencedError, match="ILLEGAL_GENERATION"):
            brokers.commit(first, 2)
        brokers.settle()
        assert brokers.committed() == 1

    brokers.play(commits)


def test_an_attempt_whose_commit_is_not_answered_leaves_what_later_attempts_have_committed(brokers: Brokers) -> None:
    end = brokers.cluster.handlers[EndTxnRequest]

    def commits() -> None:
        first = brokers.committer(fetch_entries)
        brokers.cluster.handlers[EndTxnRequest] = lambda *_: None
        process = brokers.world.process("later attempts")

        def later() -> None:
            brokers.cluster.handlers[EndTxnRequest] = end
            for offset in (2, 3):
                brokers.commit(brokers.committer(fetch_entries), offset)
                brokers.settle()

        brokers.world.after(5.0, lambda: process.start(later))
        brokers.ask(first, 1)
        assert brokers.committed() == 3

    brokers.play(commits)


def test_an_attempt_finds_the_commit_of_another_one_and_commits_nothing(brokers: Brokers) -> None:
    def commits() -> None:
        brokers.commit(brokers.committer(fetch_entries), 3, note="stream")
        brokers.settle()
        brokers.ask(brokers.committer(fetch_entries), 3, note="stream")
        assert brokers.cluster.requests["TxnOffsetCommit"] == 1

    brokers.play(commits)


def test_an_attempt_that_takes_the_id_after_a_later_micro_batch_does_not_set_the_group_back(brokers: Brokers) -> None:
    def commits() -> None:
        brokers.commit(brokers.committer(fetch_entries), 3, note="stream")
        brokers.ask(brokers.committer(fetch_entries), 1, note="stream")
        brokers.settle()
        assert brokers.committed() == 3
        # The stream was rewound, so this is not a repeated attempt.
        brokers.commit(brokers.committer(fetch_entries), 1, note="stream kafkagroup:rewound:r")
        brokers.commit(brokers.committer(fetch_entries), 2, note="stream kafkagroup:rewound:r")
        brokers.settle()

    brokers.play(commits)


@pytest.mark.parametrize("known", [None, text_of_id(OTHER)])
def test_an_attempt_has_its_caller_look_at_topics_and_commits_the_rest_in_the_same_transaction(
    known: str | None,
) -> None:
    brokers = Brokers(1)

    def commits() -> None:
        committer = brokers.committer(fetch_entries)
        with pytest.raises(UnknownTopicError):
            committer.commit_as([(MEMBER, {TP: CommitOffset(1, topic_id=known)})], has_looked=False)
        assert (TP.topic, TP.partition) not in brokers.group.offsets
        committer.commit_as([(MEMBER, {TP: CommitOffset(1)})])
        brokers.settle()
        assert brokers.committed() == 1
        assert [name for name, _ in brokers.versions] == ["InitProducerId", "TxnOffsetCommit", "EndTxn"]

    brokers.play(commits)


def test_a_member_looks_at_topics_only_where_its_commit_names_them_by_names(brokers: Brokers) -> None:
    known = text_of_id(brokers.cluster.topics[TP.topic].id)

    def commits() -> None:
        committer = brokers.committer()
        is_first = brokers.cluster.transaction_version == 1
        if is_first:
            with pytest.raises(UnknownTopicError, match="has topic names without ids"):
                committer.commit_as([(MEMBER, {TP: CommitOffset(1, topic_id=known)})], has_looked=False)
            assert (TP.topic, TP.partition) not in brokers.group.offsets
        committer.commit_as([(MEMBER, {TP: CommitOffset(1, topic_id=known)})], has_looked=is_first)
        assert [name for name, _ in brokers.versions] == ["InitProducerId", "TxnOffsetCommit", "EndTxn"]
        brokers.settle()
        assert brokers.committed() == 1
        with pytest.raises(UnknownTopicError):
            committer.commit_as([(MEMBER, {TP: CommitOffset(2, topic_id=text_of_id(OTHER))})], has_looked=False)
        brokers.settle()
        assert brokers.committed() == 1

    brokers.play(commits)


def test_an_attempt_whose_commit_is_not_answered_repeats_it_where_nobody_has_taken_its_id(brokers: Brokers) -> None:
    end = brokers.cluster.handlers[EndTxnRequest]

    def commits() -> None:
        committer = brokers.committer(fetch_entries)
        brokers.cluster.handlers[EndTxnRequest] = lambda *_: None
        brokers.world.after(9.0, lambda: brokers.cluster.handlers.update({EndTxnRequest: end}))
        brokers.commit(committer, 1)
        brokers.settle()
        assert brokers.committed() == 1

    brokers.play(commits)


def test_the_offset_of_a_deleted_topic_is_refused_for_the_one_that_was_created_after_it() -> None:
    brokers = Brokers(2)

    def commits() -> None:
        committer = brokers.committer()
        brokers.commit(committer, 1)
        with pytest.raises(UnknownTopicError, match=f"for {TP.topic}-{TP.partition}"):
            brokers.commit(committer, 2, OTHER)
        brokers.settle()
        assert brokers.committed() == 1
        brokers.commit(committer, 3)
        brokers.settle()
        assert brokers.committed() == 3

    brokers.play(commits)


def test_a_coordinator_that_moves_between_the_requests_ends_the_transaction() -> None:
    brokers = Brokers(2, brokers=3)

    def commits() -> None:
        committer = brokers.committer()
        for offset in range(1, 20):
            brokers.world.after(0.001 * offset, lambda: brokers.cluster.move_coordinator(TRANSACTION, NAME))
            brokers.commit(committer, offset)
            brokers.settle()
            assert brokers.committed() == offset

    brokers.play(commits)


def test_a_commit_does_not_fail_with_the_error_of_an_initialisation_that_is_over(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is missing for 45 s when the committer begins, and is there long before the first commit."""

    def commits() -> None:
        monkeypatch.setattr(brokers.cluster, "coordinator", lambda *_: -1)
        committer = brokers.committer()
        brokers.world.sleep(45)
        monkeypatch.undo()
        brokers.world.sleep(600)
        brokers.commit(committer, 5)
        brokers.settle()


def test_a_commit_waits_for_a_missing_coordinator_as_long_as_its_initialisation_in_the_background(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commits() -> None:
        monkeypatch.setattr(brokers.cluster, "coordinator", lambda *_: -1)
        with pytest.raises(InvalidConfigurationError, match="COORDINATOR_NOT_AVAILABLE"):
            brokers.commit(brokers.committer(), 5)
        assert brokers.world.now < 35

    brokers.play(commits)
