import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.error_codes import ErrorCode
from kafka_source.group.classic.member_state import (
    Action,
    Disconnected,
    HeartbeatAnswered,
    JoinAnswered,
    Left,
    MemberStatus,
    Rejoin,
    State,
    Step,
    SyncAnswered,
    step,
)

JOINING = MemberStatus(State.JOINING, "m-1", 4)
SYNCING = MemberStatus(State.AWAITING_SYNC, "m-1", 5)
STABLE = MemberStatus(State.STABLE, "m-1", 5)
REBALANCING = MemberStatus(State.REBALANCING, "m-1", 5)
MEMBERS = (STABLE, REBALANCING)


def test_the_way_in() -> None:
    wants_in = step(MemberStatus(), Rejoin())
    assert wants_in == Step(MemberStatus(State.JOINING), Action.JOIN)
    told_its_id = step(wants_in.status, JoinAnswered(79, "m-1"))
    assert told_its_id == Step(MemberStatus(State.JOINING, "m-1"), Action.JOIN)
    joined = step(told_its_id.status, JoinAnswered(0, "m-1", 5))
    assert joined == Step(SYNCING, Action.SYNC)
    assert step(joined.status, SyncAnswered(0)) == Step(STABLE, Action.WORK)


def test_a_static_member_takes_the_id_it_is_given() -> None:
    assert step(MemberStatus(State.JOINING), JoinAnswered(0, "app-0-77", 9)).status.member_id == "app-0-77"


@pytest.mark.parametrize("code", [14, 15, 16, 27])
def test_what_passes_while_joining_is_tried_again_later(code: int) -> None:
    result = step(JOINING, JoinAnswered(code))
    assert (result.action, result.back_off, result.find_coordinator) == (Action.JOIN, True, code in (15, 16))
    assert (result.status.member_id, result.status.failures) == ("m-1", 1)


def test_an_unknown_member_joins_as_a_new_one() -> None:
    assert step(JOINING, JoinAnswered(25)).status.member_id == ""
    assert step(SYNCING, SyncAnswered(25)) == Step(MemberStatus(State.JOINING), Action.JOIN)


@pytest.mark.parametrize("code", [22, 27])
def test_a_rebalance_during_sync_joins_again_at_once_with_the_same_id(code: int) -> None:
    result = step(SYNCING, SyncAnswered(code))
    assert (result.action, result.back_off, result.status.member_id) == (Action.JOIN, False, "m-1")


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_lost_before_the_sync_was_answered_is_asked_to_sync_again(code: int) -> None:
    result = step(SYNCING, SyncAnswered(code))
    assert (result.action, result.back_off, result.status.generation) == (Action.SYNC, True, 5)
    assert step(SYNCING, Disconnected()).action is Action.SYNC


def test_a_parked_join_that_is_lost_is_sent_again_to_the_coordinator_of_then() -> None:
    result = step(JOINING, Disconnected())
    assert (result.action, result.find_coordinator, result.status.member_id) == (Action.JOIN, True, "m-1")


@pytest.mark.parametrize("member", MEMBERS)
def test_what_heartbeats_tell(member: MemberStatus) -> None:
    assert step(member, HeartbeatAnswered(0)) == Step(member, Action.WORK)
    assert step(member, HeartbeatAnswered(27)).status == REBALANCING
    assert step(member, HeartbeatAnswered(22)).status == MemberStatus(State.LOST, "m-1", 5)
    assert step(member, HeartbeatAnswered(25)).status == MemberStatus(State.LOST)
    assert step(member, HeartbeatAnswered(82)) == Step(MemberStatus(State.FENCED, "m-1", 5), Action.STOP, code=82)
    moved = step(member, HeartbeatAnswered(16))
    assert (moved.action, moved.find_coordinator, moved.status.is_member) == (Action.WORK, True, True)


def test_a_fenced_member_does_not_fight_back() -> None:
    for state, event in ((JOINING, JoinAnswered(82)), (SYNCING, SyncAnswered(82)), (STABLE, HeartbeatAnswered(82))):
        fenced = step(state, event)
        assert (fenced.status.state, fenced.action, fenced.code) == (State.FENCED, Action.STOP, 82)
        assert step(fenced.status, Rejoin()).action is Action.STOP


@pytest.mark.parametrize("code", [23, 24, 26, 30, 35, 81])
def test_what_only_the_user_can_change_stops_the_member(code: int) -> None:
    result = step(JOINING, JoinAnswered(code))
    assert (result.status.state, result.action, result.code) == (State.FAILED, Action.STOP, code)


def test_a_late_answer_to_a_heartbeat_changes_nothing() -> None:
    for member in (JOINING, SYNCING, MemberStatus(State.LEFT)):
        assert step(member, HeartbeatAnswered(25)).status == member


def test_one_that_left_comes_back_as_a_stranger() -> None:
    left = step(STABLE, Left()).status
    assert step(left, Rejoin()).status == MemberStatus(State.JOINING)


def test_an_answer_that_nobody_waits_for_is_refused() -> None:
    with pytest.raises(ValueError, match="the event JoinAnswered is not possible in the state stable"):
        step(STABLE, JoinAnswered(0, "m-1", 5))


CODE = st.sampled_from([0, *(code for code in ErrorCode if code > 0)])
ANSWERS = {
    Action.JOIN: st.one_of(
        st.builds(JoinAnswered, CODE, st.sampled_from(["m-1", "m-2"]), st.integers(1, 9)), st.just(Disconnected())
    ),
    Action.SYNC: st.one_of(st.builds(SyncAnswered, CODE), st.just(Disconnected())),
    Action.WORK: st.one_of(st.builds(HeartbeatAnswered, CODE), st.just(Disconnected()), st.just(Rejoin())),
}


@given(st.data())
def test_whatever_the_coordinator_says_the_next_thing_to_do_is_clear(data: st.DataObject) -> None:
    now = step(MemberStatus(), Rejoin())
    for _ in range(30):
        member = now.status
        if now.action is Action.STOP:
            assert member.state in (State.FENCED, State.FAILED)
            assert now.code
            return
        expected = {Action.JOIN: {State.JOINING}, Action.SYNC: {State.AWAITING_SYNC}}
        assert member.state in expected.get(now.action, {State.STABLE, State.REBALANCING, State.LOST})
        if member.is_member or member.state is State.AWAITING_SYNC:
            assert member.member_id
            assert member.generation > 0
        before, event = now, data.draw(ANSWERS[now.action])
        now = step(member, event)
        # Whatever goes wrong, there is a pause before the same is tried again: no loop runs hot.
        if now.action is before.action and now.action in (Action.JOIN, Action.SYNC) and isinstance(event, Disconnected):
            assert now.back_off
