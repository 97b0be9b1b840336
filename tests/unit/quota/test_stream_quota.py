"""How a stream's driver cuts micro-batches to its quota."""

import time
from contextlib import closing

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.quota.bounds import Bounds, QuotaSettings
from kafka_source.quota.server import StreamQuota
from kafka_source.quota.task_figures import TaskFigures
from kafka_source.quota.task_pacer import pacer_of

SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_figures_of_tasks_are_known_when_all_have_reported_also_where_nothing_is_limited() -> None:
    settings = QuotaSettings(Bounds(), 11, 1.0, None, None, "orders")
    with closing(StreamQuota(settings, SETTINGS)) as quota:
        figures = TaskFigures(quota, counts_bad=True, target=0.5)
        assert figures.take() == (None, None)
        figures.expect(2)
        assert figures.take() == (None, None)
        began = time.monotonic()
        for slot in (0, 1):
            with pacer_of(quota.ticket(slot, 0.5), SETTINGS, "") as pacer:
                pacer.found_bad(2)
                assert pacer.seconds_to_wait(10) == 0
                pacer.found_bad(1)
                time.sleep(0.05)
            if slot == 0:
                assert figures.has_bad_records
                assert figures.take() == (3, None)
        bad, cores = figures.take()
        assert bad == 3
        assert cores is not None
        assert 0.05 / 0.5 <= cores <= (time.monotonic() - began) / 0.5
        figures.expect(1)
        assert figures.take() == (None, None)


def test_slots_share_the_micro_batch() -> None:
    quota_of = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 11, 1.0, None, None, "orders")
    with closing(StreamQuota(quota_of, SETTINGS)) as quota:
        with pacer_of(quota.ticket(0, 1.0), SETTINGS, "") as pacer:
            pacer.measured(ONE, 1000.0, 1)
            pacer.measured(TWO, 1000.0, 1)
        alone = quota.admit({ONE: 0}, {ONE: 10_000_000})[ONE]
        both = quota.admit({ONE: 0, TWO: 0}, {ONE: 10_000_000, TWO: 10_000_000})
        assert both == {ONE: alone // 2, TWO: alone // 2}
