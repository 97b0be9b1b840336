"""When a trigger is attempted again, and until when."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import NoLeaderError
from kafka_source.commits.as_members import SlotsRemovedError
from kafka_source.errors import BootstrapError, RefreshRetriableError, RetriableError
from kafka_source.source.attempts import Again, Patience, repeat, unfinished
from kafka_source.source.topic_tracker import PartitionsWithoutLeader, TopicTracker

TP = TopicPartition("t", 0)


class Topics:
    """Counts how often the topics are described again."""

    refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """A clock that a pause sets forward; other threads of the process keep the real clock."""
    now, here, clock, sleep = [1000.0], threading.get_ident(), time.monotonic, time.sleep

    def pause(seconds: float) -> None:
        if threading.get_ident() == here:
            now[0] += seconds
        else:
            sleep(seconds)

    monkeypatch.setattr("time.monotonic", lambda: now[0] if threading.get_ident() == here else clock())
    monkeypatch.setattr("time.sleep", pause)
    return lambda: now[0]


def run(outcomes: list[object], topics: Topics, clock: Callable[[], float]) -> str:
    """Return the result of attempts with these outcomes; the last one stays."""
    left = [*outcomes]

    def attempt() -> str | Again:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return cast("str | Again", found)

    tracker: Any = topics
    leaderless = PartitionsWithoutLeader(10, clock)
    return repeat(attempt, leaderless, cast("TopicTracker", tracker))


def test_an_error_of_a_look_is_an_attempt_to_make_again() -> None:
    assert Again.after(NoLeaderError([TP])).patience is Patience.LEADERS
    assert Again.after(SlotsRemovedError("gone")).patience is Patience.MEMBERS
    assert Again.after(RefreshRetriableError("a topic has changed")).patience is Patience.TOPICS


def test_a_change_of_topics_is_waited_for_from_its_first_failure_on(seconds: Callable[[], float]) -> None:
    topics, began = Topics(), seconds()
    with pytest.raises(RefreshRetriableError, match="unknown"):
        run([RefreshRetriableError("unknown")], topics, seconds)
    assert 30 <= seconds() - began < 31
    assert topics.refreshed > 100


def test_brokers_that_a_lookup_has_waited_for_are_not_waited_for_again(seconds: Callable[[], float]) -> None:
    topics, began = Topics(), seconds()
    with pytest.raises(BootstrapError):
        run([BootstrapError("no broker")], topics, seconds)
    assert seconds() == began


def test_a_process_that_was_suspended_looks_at_the_topics_again(seconds: Callable[[], float]) -> None:
    attempts = []

    def attempt() -> str | Again:
        attempts.append(seconds())
        if len(attempts) == 2:
            time.sleep(60)
        if len(attempts) < 3:
            raise RefreshRetriableError("unknown")
        return "planned"

    topics: Any = Topics()
    assert repeat(attempt, PartitionsWithoutLeader(10, seconds), topics) == "planned"


def test_members_that_rejoin_are_waited_for_and_begin_the_time_of_a_change_of_topics_again(
    seconds: Callable[[], float],
) -> None:
    began, topic = seconds(), RefreshRetriableError("unknown")
    outcomes = [*[topic] * 100, SlotsRemovedError("gone"), *[topic] * 100, "planned"]
    assert run(outcomes, Topics(), seconds) == "planned"
    assert seconds() - began > 35


def test_a_partition_without_a_leader_ends_the_query_when_its_time_is_over(seconds: Callable[[], float]) -> None:
    topics, began = Topics(), seconds()
    with pytest.raises(RetriableError, match="No broker has led t:0 for 10 s"):
        run([NoLeaderError([TP])], topics, seconds)
    assert 10 < seconds() - began < 11
    assert not topics.refreshed


@given(st.booleans(), st.booleans(), st.booleans())
def test_a_run_that_reads_everything_ends_only_when_nothing_can_come(leader: bool, topics: bool, logs: bool) -> None:
    again = unfinished(leaderless=[TP] * leader, unassigned=[TP] * topics, short_logs=logs)
    waits = [Patience.LEADERS] * leader + [Patience.TOPICS] * topics + [Patience.LOGS] * logs
    assert (None if again is None else again.patience) == (waits[0] if waits else None)
