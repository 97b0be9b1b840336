"""The keeper of a batch's slots, while no broker answers."""

import time
from collections.abc import Callable, Iterable

import pytest

from assignors import TopicPartition, load
from kafka_source.client_config import Settings
from kafka_source.commits.keeper import SlotKeeper
from kafka_source.commits.rights import Right
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.model import GroupSettings, Topics
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials

SETTINGS = GroupSettings("g", slots=1, coordinator_timeout_ms=20_000)
TP = TopicPartition("orders", 0)


class HasNotCommitted(ClassicMembership):
    """A membership whose group has another coordinator than the requests of tasks, and this one answers."""

    def committed_entries(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True, timeout_s: float | None = None
    ) -> dict[TopicPartition, CommitOffset]:
        return {}


@pytest.mark.parametrize("make", [ClassicMembership, HasNotCommitted])
def test_the_end_of_the_driver_is_noticed_while_a_lookup_gets_no_answer(
    make: Callable[..., ClassicMembership], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_source.commits.keeper._LOOK_SECONDS", 0.2, raising=False)
    membership = make(Settings({"bootstrap.servers": "127.0.0.1:1"}), SETTINGS, Topics(("orders",)), [load("range")])
    monkeypatch.setattr(membership, "leave", lambda: None)
    slot = SlotCredentials("g", 1, "member", None, 0, (TP,))
    started = time.monotonic()
    looks = iter(range(4))
    keeper = SlotKeeper(membership, [slot], Right("right"), {TP: 1}, lambda: next(looks, None) is not None, -1)
    assert keeper.run() == "the Spark driver has ended"
    assert time.monotonic() - started < 15
