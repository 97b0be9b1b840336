"""Samples of an hour in the life of a query: a burst, a second application that joins and leaves, a quota."""

import math
import random

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import Commit, Rebalance, RebalanceCause
from kafkagroup.metrics import PartitionSample, Sample

START = 1_700_000_000.0
PARTITIONS = [TopicPartition("orders", number) for number in range(8)]
STEP = 10.0
AWAY = range(150, 240)
"""The micro-batches in which another application has half of the partitions."""
_QUOTA = 180.0


def incident(batches: int = 360) -> list[Sample]:
    """A micro-batch every 10 s; the same samples at each call."""
    chance = random.Random(7)
    ends = dict.fromkeys(PARTITIONS, 0)
    reads = dict.fromkeys(PARTITIONS, 0)
    fetched, samples, had = 0, [], set(PARTITIONS)
    for batch in range(batches):
        at = START + STEP * batch
        burst = 3.0 if 60 <= batch < 100 else 1.0
        for number, tp in enumerate(PARTITIONS):
            hot = 3.0 if number == 5 else 1.0
            wave = 1 + 0.3 * math.sin(batch / 25 + number)
            ends[tp] += int(chance.uniform(0.7, 1.3) * 55 * STEP * burst * hot * wave / 6)
        mine = [tp for tp in PARTITIONS if batch not in AWAY or tp.partition < 4]
        for tp in set(PARTITIONS) - set(mine):
            reads[tp] = ends[tp]
        left = sum(ends[tp] - reads[tp] for tp in mine)
        share = min(1.0, _QUOTA * STEP / max(1, left))
        partitions = {}
        for tp in mine:
            start = reads[tp]
            reads[tp] = start + int((ends[tp] - start) * share)
            slot = tp.partition % 4 if batch not in AWAY else tp.partition
            age = (1 - share) * 40.0
            partitions[tp] = PartitionSample(start, reads[tp], slot, ends[tp], age)
        rows = sum(one.end - one.start for one in partitions.values())
        rebalances = _rebalances(at, had, set(mine)) if set(mine) != had else ()
        had = set(mine)
        samples.append(
            Sample(
                at=at,
                query="billing",
                query_id="a",
                run_id="b",
                batch=batch,
                source=0,
                group="billing",
                generation=3 + (batch >= AWAY.start) + (batch >= AWAY.stop),
                rows=rows,
                seconds=2.0,
                partitions=partitions,
                commits=() if not batch else (Commit(round((at + 0.05) * 1000), 12.0),),
                rebalances=rebalances,
                quota={
                    "bytesPerSecond": None,
                    "recordsPerSecond": _QUOTA,
                    "usedPercent": 100.0 if share < 1 else 100 * left / (_QUOTA * STEP),
                    "slots": {"0": {"bytes": fetched, "records": 0, "delayMs": 0, "throttleMs": 0}},
                },
            )
        )
        # The account in the offset of a micro-batch is from before it.
        fetched += rows * 120
    return samples


def _rebalances(at: float, had: set[TopicPartition], has: set[TopicPartition]) -> tuple[Rebalance, ...]:
    came, went = (("other-0",), ()) if len(has) < len(had) else ((), ("other-0",))
    gained, lost = tuple(sorted(has - had)), tuple(sorted(had - has))
    why = "a member joined, left or changed its subscription"
    return (Rebalance(round((at - 2) * 1000), 4, RebalanceCause.MEMBERS, why, 900, 5, came, went, gained, lost),)
