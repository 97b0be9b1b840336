"""When a driver assumes that the sessions of its slots may have ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_source.group.classic import background
from kafka_source.group.classic.background import Heartbeats
from kafka_source.group.classic.member_state import State
from kafka_source.kafka_client import Deadline


def test_a_session_is_counted_from_the_time_at_which_an_answered_heartbeat_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    status = SimpleNamespace(state=State.STABLE, is_member=True)

    async def heartbeat(_: Deadline) -> Any:
        now[0] += 6.0
        return SimpleNamespace(status=status, back_off=False)

    slot: Any = SimpleNamespace(member=SimpleNamespace(status=status, heartbeat=heartbeat))
    settings: Any = SimpleNamespace(group="g", session_timeout_ms=10_000)
    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: now[0]))
    heartbeats = Heartbeats(settings, [slot])
    assert asyncio.run(heartbeats.send(Deadline(30)))
    now[0] += 3.0
    assert not heartbeats.session_may_have_ended
    now[0] += 2.0
    assert heartbeats.session_may_have_ended
