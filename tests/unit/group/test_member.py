from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse

from assignors import Subscription, encode_subscription
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.group.member import Joined, Member, MemberSettings
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
