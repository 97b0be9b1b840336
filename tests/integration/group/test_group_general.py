"""Groups that are not about topics: a leader election and a pool of workers."""

from contextlib import ExitStack

import pytest

from kafka_source.client_config import Settings
from kafka_source.group import GenericMember, MemberSettings
from tests.support.waiting import wait_until


def elect(protocol, said):
    """The member with the lowest rank writes."""
    writer = min(said, key=lambda member_id: said[member_id])
    return {member_id: b"write" if member_id == writer else b"wait" for member_id in said}


@pytest.fixture
def candidate(kafka, group):
    config = Settings({"bootstrap.servers": kafka.bootstrap_servers})

    def make(rank, lead=elect, instance_id=None):
        settings = MemberSettings(
            group, instance_id, protocol_type="election", session_timeout_ms=6_000, rebalance_timeout_ms=6_000
        )
        return GenericMember(config, settings, {"lowest": rank}, lead, heartbeat_interval_ms=200)

    return make


def test_exactly_one_writes_and_another_follows_when_it_goes(candidate):
    with ExitStack() as stack:
        candidates = [stack.enter_context(candidate(rank)) for rank in (b"1", b"2", b"3")]

        def settled(expected):
            states = [c.state for c in candidates]
            return all(states) and [s.state for s in states] == expected and len({s.generation for s in states}) == 1

        wait_until(lambda: settled([b"write", b"wait", b"wait"]), "the first election")
        generation = candidates[0].state.generation
        assert sum(c.state.leading for c in candidates) == 1
        candidates.pop(0).close()
        wait_until(lambda: settled([b"write", b"wait"]), "the second election")
        assert candidates[0].state.generation > generation


def test_a_leader_that_breaks_leaves_nobody_with_a_task(candidate):
    def broken(protocol, said):
        raise RuntimeError("no idea")

    with candidate(b"1", broken) as only:
        state = only.wait(30)
        assert (state.leading, state.state) == (True, b"")
