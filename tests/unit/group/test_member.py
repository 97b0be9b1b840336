from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse

from assignors import Subscription, encode_subscription
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import ApplicationRecoverableError, AuthenticationError, FencedError
from kafka_source.group.classic.member import Joined, Member, MemberSettings
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.model import GroupMember
from kafka_source.group.requests import DescribedMember, GroupDescription
from kafka_source.kafka_client import Deadline, KafkaClient
from tests.support.fake_broker import FakeBroker

OFFERED = (("range", encode_subscription(Subscription(("orders",)))),)
REFUSED = r"the protocol '{}', which this member did not offer: it offered range"


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported, and of something in it that can be called."""
    (tmp_path / "named_by_a_broker.py").write_text("def made(): raise SystemExit('called')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "named_by_a_broker:made"


@pytest.fixture
def broker(named: str) -> Iterator[FakeBroker]:
    """A coordinator that lets everybody join as the leader, and names that module as the group's strategy."""
    with closing(FakeBroker()) as there:
        there.coordinator_error = 0

        def join(request: JoinGroupRequest, _: int) -> JoinGroupResponse:
            member = JoinGroupResponse.JoinGroupResponseMember(
                member_id="m", group_instance_id=request.group_instance_id, metadata=OFFERED[0][1]
            )
            return JoinGroupResponse(
                throttle_time_ms=0,
                error_code=0,
                generation_id=5,
                protocol_name=named,
                leader="m",
                member_id="m",
                members=[member],
            )

        there.answer(JoinGroupRequest, 5, join)
        there.answer(HeartbeatRequest, 3, lambda _, __: HeartbeatResponse(throttle_time_ms=0, error_code=0))
        yield there


def test_a_member_does_not_follow_a_protocol_that_it_did_not_offer(broker: FakeBroker, named: str) -> None:
    async def lead(joined: Joined) -> dict[str, bytes]:
        raise AssertionError("it leads nothing")

    client = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    with closing(client), pytest.raises(ApplicationRecoverableError, match=REFUSED.format(named)):
        client.run(Member(client, MemberSettings("g")).join(OFFERED, lead, Deadline(10)), 11)


@pytest.fixture
def member() -> Iterator[Member]:
    """A static member that speaks to nobody."""
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as client:
        yield Member(client, MemberSettings("g", "app-0"))


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, State.REBALANCING),
        (ErrorCode.ILLEGAL_GENERATION, State.LOST),
        (ErrorCode.UNKNOWN_MEMBER_ID, State.LOST),
        (ErrorCode.NOT_COORDINATOR, State.STABLE),
        (0, State.STABLE),
    ],
)
def test_a_commits_error_means_what_a_heartbeats_does(member: Member, code: int, state: State) -> None:
    member.status = MemberStatus(State.STABLE, "m", 3)
    member.handle_error(code)
    assert member.status.state is state
    member.check()


def test_a_fenced_member_stays_fenced_and_says_what_to_do(member: Member) -> None:
    member.status = MemberStatus(State.STABLE, "m", 3)
    member.handle_error(ErrorCode.FENCED_INSTANCE_ID)
    member.handle_error(0)
    with pytest.raises(FencedError, match=r"joined group g as app-0\. Each query needs a kafka\.group\.instance\.id"):
        member.check()
    assert not member.may_be_known


def test_a_refused_member_names_the_setting(member: Member) -> None:
    member.status = MemberStatus(State.STABLE, "m", 3)
    member.handle_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(AuthenticationError, match="Staying in group g as app-0 failed"):
        member.check()


@given(state=st.sampled_from(State), member_id=st.sampled_from(["", "m"]), sent=st.booleans())
def test_only_a_member_that_the_coordinator_may_have_needs_to_leave(state: State, member_id: str, sent: bool) -> None:
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as client:
        for instance_id in (None, "app-0"):
            member = Member(client, MemberSettings("g", instance_id), MemberStatus(state, member_id, 3))
            member.join_sent = sent
            in_group = state in (State.JOINING, State.AWAITING_SYNC, State.STABLE, State.REBALANCING)
            # While the coordinator holds the JoinGroup of a static member, it has no id yet.
            assert member.may_be_known == (in_group and bool(member_id or (sent and instance_id)))


def test_a_member_that_has_left_is_not_known_any_more(member: Member) -> None:
    member.status, member.join_sent = MemberStatus(State.STABLE, "m", 3), True
    assert member.may_be_known
    member.note_left()
    assert (member.status, member.join_sent, member.may_be_known) == (MemberStatus(State.LEFT), False, False)


def test_the_member_id_of_before_is_remembered_before_the_first_join_only(member: Member) -> None:
    described = GroupDescription(
        "Stable", "consumer", "range", (DescribedMember(GroupMember("old", "app-0", b""), b"", "c", "h"),)
    )
    member.remember_member_id(None)
    assert member.id_before is None
    member.remember_member_id(described)
    assert member.id_before == "old"
    member.id_before, member.joined = "new", Joined("new", 3, "range", "new", (), False)
    member.remember_member_id(described)
    assert member.id_before == "new"


def test_a_member_that_has_not_joined_has_no_last_join(member: Member) -> None:
    with pytest.raises(RuntimeError, match="has not joined its group yet"):
        _ = member.last_join
