"""What the log says of a group: who joined, who got what and why, and a micro-batch that holds others up."""

import logging
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.memberships import everything, held
from tests.support.waiting import wait_until


@pytest.fixture
def said(caplog):
    """The group layer's lines that begin with a word, so far."""
    caplog.set_level(logging.INFO, "kafka_source.group")

    def lines(word):
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"{word} ")]

    return lines


def test_joins_assignments_and_rebalances_are_told_with_cause_and_duration(members, topic, group, said):
    orders = topic("orders", partitions=8)
    first = members.make(orders, slots=2, app="a")
    generation = first.join(30).generation
    assert re.fullmatch(
        rf"lead group={group} generation={generation} assignor=range members=2 topics=1 partitions=8 took_ms=\d+",
        # The slots may come one after the other, a generation each.
        said("lead")[-1],
    )
    assert re.fullmatch(
        rf"rebalance group={group} generation={generation} cause=start reason='the query starts' took_ms=\d+ "
        rf"leading=True assignor=range members=2 came=unknown went=unknown slots=2 partitions=8 gained={orders}:0-7 "
        "lost=none",
        said("rebalance")[0],
    )
    mine = f"assigned group={group} generation={generation}"
    assert said("assigned") == [
        f"{mine} slot=0 member={group}-a-0 partitions={orders}:0-3 standby=none",
        f"{mine} slot=1 member={group}-a-1 partitions={orders}:4-7 standby=none",
    ]
    second = members.make(orders, slots=1, app="b")
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join, 60)
        wait_until(first.rebalance_needed, "the rebalance")
        first.rejoin(30)
        joining.result()
    assert any(line.endswith("now='rebalancing'") for line in said("heartbeat"))
    came = f"came={group}-b-0 went=none slots=2 partitions=6 gained=none lost={orders}:6-7"
    assert any(
        "cause=members reason='a member joined, left or changed its subscription'" in line and came in line
        for line in said("rebalance")
    )
    second.close()
    assert said("leave") == [f"leave group={group} slots=1 reason='the query ends'"]


def test_a_micro_batch_that_holds_a_rebalance_up_is_told_of_before_it_is_too_late(members, topic, said):
    orders = topic("orders", partitions=4)
    busy = members.make(orders, slots=2, app="a", rebalance_timeout_ms=18_000)
    busy.join(30)
    other = members.make(orders, slots=1, app="b", rebalance_timeout_ms=18_000)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(other.join, 60)
        (warning, *_) = wait_until(lambda: [line for line in said("rebalance") if "has waited" in line], "the warning")
        [(waited, limit)] = re.findall(
            r"has waited (\d+) s .* after (\d+) s the group continues without the query's slots", warning
        )
        assert int(limit) / 2 <= int(waited) < int(limit) == 18
        assert "kafka.max.poll.interval.ms" in warning
        # It was told in time: the micro-batch ends, and nothing is lost.
        busy.commit({slot.credentials.slot: dict.fromkeys(slot.partitions, 1) for slot in busy.assignment.slots})
        busy.rejoin(30)
        joining.result()
    assert held(busy, other) == everything(orders, 4)
