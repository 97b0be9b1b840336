"""Where reading starts, as far as no cluster is needed to tell."""

from __future__ import annotations

from typing import cast

import pytest

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import OptionError
from kafka_source.options import Where, read_options
from kafka_source.source.start_and_end import starting_offsets

TP = TopicPartition("orders", 0)


def test_starting_offsets_that_name_no_partition_are_not_the_default() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "startingOffsets": "{}"}
    options = read_options(given, Where.BATCH)
    # It is not asked.
    cluster = cast("Cluster", None)
    with pytest.raises(OptionError, match=r"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED.*not named: orders-0"):
        starting_offsets(cluster, options, [TP], {}, subscribed=[TP], default="earliest")
