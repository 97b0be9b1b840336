"""How a stream's driver cuts micro-batches to its quota."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.quota.bounds import Bounds, QuotaSettings
from kafka_source.quota.server import StreamQuota
from kafka_source.quota.task_pacer import pacer_of

SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


@contextmanager
def quota_of(*, per_member: bool) -> Iterator[StreamQuota]:
    """A quota of 1 MB/s, of whose partitions tasks have measured records of 1000 bytes."""
    bounds = Bounds(bytes_per_second=1_000_000.0)
    with closing(StreamQuota(QuotaSettings(bounds, per_member, 11, 1.0, None, None, "orders"), SETTINGS)) as quota:
        with pacer_of(quota.ticket(0, 1.0), SETTINGS, "") as pacer:
            pacer.measured(ONE, 1000.0, 1)
            pacer.measured(TWO, 1000.0, 1)
        yield quota


def test_bad_records_of_all_tasks_are_counted_once_each_also_where_nothing_is_limited() -> None:
    settings = QuotaSettings(Bounds(), False, 11, 1.0, None, None, "orders")
    with closing(StreamQuota(settings, SETTINGS)) as quota:
        assert quota.bad_records() == 0
        for slot in (0, 1):
            with pacer_of(quota.ticket(slot, 0.5), SETTINGS, "") as pacer:
                pacer.found_bad(2)
                assert pacer.seconds_to_wait(10) == 0
                pacer.found_bad(1)
        assert (quota.bad_records(), quota.tasks_done()) == (6, 2)


@pytest.mark.parametrize("left", [0, 10, 20_000_000])
@pytest.mark.parametrize("slots", [{ONE: 0, TWO: 1}, {ONE: 1, TWO: 0}])
def test_each_member_is_bounded_however_little_another_has_to_read(slots: dict[TopicPartition, int], left: int) -> None:
    with quota_of(per_member=True) as quota:
        alone = quota.admit({ONE: 0}, {ONE: 10_000_000}, slots)[ONE]
        assert 0 < alone < 20_000
        assert quota.admit({ONE: 0, TWO: 0}, {ONE: 10_000_000, TWO: left}, slots) == {ONE: alone, TWO: min(left, alone)}


def test_slots_that_share_a_bound_share_the_micro_batch() -> None:
    with quota_of(per_member=False) as quota:
        slots = {ONE: 0, TWO: 1}
        alone = quota.admit({ONE: 0}, {ONE: 10_000_000}, slots)[ONE]
        both = quota.admit({ONE: 0, TWO: 0}, {ONE: 10_000_000, TWO: 10_000_000}, slots)
        assert both == {ONE: alone // 2, TWO: alone // 2}
