"""The end offsets of a micro-batch within a quota or `maxBytesPerTrigger`. Pure."""

from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.quota.bounds import Amounts

UNKNOWN_RECORD_BYTES = 65_536.0
"""The size of a record before the first measurement, so large that the first micro-batch is short."""


def admit(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
    allowed: Amounts,
) -> dict[TopicPartition, int]:
    """Return an end offset for each partition of `starts`, so that the micro-batch is within `allowed`.

    Each partition gets a share in proportion to its available offsets, at least one offset.

    Args:
        starts: Start offsets.
        ends: The end offsets without a quota, for the partitions of `starts` and perhaps for others.
        record_bytes: The measured bytes per offset; a partition without a measurement gets the average of the others.
        allowed: The maximum bytes and records of the micro-batch.
    """
    known = [record_bytes[tp] for tp in starts if tp in record_bytes]
    otherwise = sum(known) / len(known) if known else UNKNOWN_RECORD_BYTES
    sizes = {tp: max(0, ends[tp] - start) for tp, start in starts.items()}
    total = sum(size * record_bytes.get(tp, otherwise) for tp, size in sizes.items()), sum(sizes.values())
    part = min([1.0, *(bound / whole for bound, whole in zip(allowed, total, strict=True) if whole)])
    admitted, owed = {}, 0.0
    for tp, size in sizes.items():
        # A fraction of an offset, which may be some percent of a batch, goes to the next partition.
        owed += size * part
        taken = min(size, max(1, int(owed)))
        owed = max(0.0, owed - taken)
        admitted[tp] = starts[tp] + taken
    return admitted
