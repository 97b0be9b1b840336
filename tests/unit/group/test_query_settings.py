"""What a query's options say of its slots."""

import pytest

from kafka_source.group.model import group_settings
from kafka_source.options import Where, read_options


def options(**given):
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "kafka.group.id": "g"}
    return read_options({**base, **{name.replace("_", "."): value for name, value in given.items()}}, Where.STREAM)


@pytest.mark.parametrize(
    ("given", "partitions", "slots"),
    [({}, 3, 3), ({}, 8, 8), ({}, 1000, 8), ({}, 0, 1), ({"group_members": "200"}, 5, 200)],
)
def test_there_are_as_many_slots_as_partitions_up_to_a_bound_or_as_the_option_says(given, partitions, slots):
    assert group_settings(options(**given), partitions=partitions, stream=True).slots == slots
