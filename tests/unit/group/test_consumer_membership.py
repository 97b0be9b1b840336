"""The members of a query in the consumer protocol, while a batch is in flight."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.rights import Right
from kafka_source.errors import RetriableError
from kafka_source.group.consumer import membership as module
from kafka_source.group.consumer.member_state import State
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.model import BatchInFlight, GroupSettings
from kafka_source.kafka_client import Deadline
from kafka_source.model.topic_selection import TopicSelection


@pytest.fixture
def membership() -> Iterator[ConsumerMembership]:
    settings = Settings({"bootstrap.servers": "127.0.0.1:1"})
    made = ConsumerMembership(settings, GroupSettings("g", slots=2), TopicSelection(topics=("t",)))
    with closing(made):
        for slot in made._slots:
            slot.member = replace(slot.member, state=State.MEMBER, epoch=5)
        yield made
        for slot in made._slots:
            # Else it would leave, and wait for a coordinator.
            slot.member = replace(slot.member, state=State.UNJOINED)


class Recorded(Right):
    """Counts what would be published."""

    published = 0

    async def publish(self, *_: object) -> None:
        type(self).published += 1


@pytest.mark.parametrize("rises", [False, True])
def test_an_epoch_that_rises_while_tasks_get_their_credentials_is_published(
    membership: ConsumerMembership, rises: bool
) -> None:
    Recorded.published = 0
    of_first = membership.credentials[0]
    if rises:
        # Another member has joined, and the answer to a heartbeat comes between the requests of two tasks.
        membership._slots[0].member = replace(membership._slots[0].member, epoch=6)
    of_second = membership.credentials[1]
    membership.set_batch_in_flight(BatchInFlight({TopicPartition("t", 0): 10}, Recorded("sink")))
    for _ in range(2):
        asyncio.run(membership._watch_batch())
    assert [of_first.generation, of_second.generation] == [5, 5]
    assert Recorded.published == rises


def test_a_commit_that_was_refused_is_tried_again_where_no_heartbeat_is_answered(
    monkeypatch: pytest.MonkeyPatch, membership: ConsumerMembership
) -> None:
    """The answer with the newer epoch was lost, and the coordinator cannot be reached."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.2)
    with pytest.raises(RetriableError, match="answers no heartbeat"):
        membership.ask_for_newer_credentials(membership.credentials)


def test_a_slot_that_leaves_during_a_heartbeat_joins_again_with_the_next_call(membership: ConsumerMembership) -> None:
    slot = membership._slots[0]

    async def leave_and_join_again() -> None:
        async with slot._turn:
            leaving = asyncio.ensure_future(slot.leave(Deadline(0.1), comes_back=False))
            await asyncio.sleep(0)
            assert slot.member.state is State.LEFT
            slot.rejoin()
        with pytest.raises(RetriableError):
            await leaving

    membership._run(leave_and_join_again(), 10)
    assert slot.member.state is State.JOINING


@pytest.mark.parametrize("others_have", [False, True])
def test_slots_that_a_call_has_joined_again_are_not_lost(
    monkeypatch: pytest.MonkeyPatch, membership: ConsumerMembership, others_have: bool
) -> None:
    """The call of the query came while the group was asked who has the partitions of the lost batch."""
    slot = membership._slots[0]
    slot.member = replace(slot.member, state=State.LOST)

    async def ask(self: ConsumerMembership, partitions: object) -> bool:
        slot.member = replace(slot.member, state=State.MEMBER)
        return others_have

    monkeypatch.setattr(ConsumerMembership, "_are_owned_elsewhere", ask)
    membership.set_batch_in_flight(BatchInFlight({TopicPartition("t", 0): 10}, Recorded("sink")))
    membership._run(membership._watch_batch(), 10)
    assert membership._left is None
    assert slot.member.state is State.MEMBER
