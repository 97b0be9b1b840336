"""The assignors that a query's options name."""

import pytest

from assignors import Assignor
from assignors.lag_balanced import decode_measures
from assignors.model import ClusterMetadata, Subscription
from kafka_source.datasource import KafkaGroupSource
from kafka_source.errors import OptionError
from kafka_source.options import Where, read_options
from kafka_source.options.assignment_strategies import strategies_of

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "kafka.group.id": "g"}


def as_options(**given: str) -> dict[str, str]:
    return {**BASE, **{name.replace("_", "."): value for name, value in given.items()}}


def strategies(**given: str) -> list[Assignor]:
    return strategies_of(read_options(as_options(**given), Where.STREAM))


def test_they_come_in_their_order_with_their_arguments():
    first, second = strategies(
        kafka_partition_assignment_strategy="weighted,range", assignor_options='{"weighted": {"weight": 3}}'
    )
    assert (first.name, second.name) == ("weighted", "range")
    light = strategies(kafka_partition_assignment_strategy="weighted")[0]
    said = {"heavy": first.subscription_user_data(["t"]), "light": light.subscription_user_data(["t"])}
    group = {name: Subscription(["t"], data) for name, data in said.items()}
    answer = first.assign(ClusterMetadata({"t": 8}), group)
    assert {name: len(given.partitions) for name, given in answer.items()} == {"heavy": 6, "light": 2}


def test_what_the_user_knows_of_a_members_speed_is_told_to_the_leader():
    given = '{"lag-balanced": {"speed": 2500, "interval": 60, "groups": [["orders", "customers"]]}}'
    (strategy,) = strategies(kafka_partition_assignment_strategy="lag-balanced", assignor_options=given)
    assert strategy.rebalance_interval() == 60
    assert decode_measures(strategy.subscription_user_data(["orders"])).measures.speed == 2500


@pytest.mark.parametrize("given", [{"redundant_copies": "3"}, {"assignor_options": '{"redundant": {"copies": 3}}'}])
def test_the_number_of_copies(given):
    (redundant,) = strategies(kafka_partition_assignment_strategy="redundant", **given)
    group = {name: Subscription(["t"]) for name in "ABCD"}
    answer = redundant.assign(ClusterMetadata({"t": 4}), group)
    assert sum(len(of_it.partitions) for of_it in answer.values()) == 12


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"kafka_partition_assignment_strategy": "best"},
            r"kafka\.partition\.assignment\.strategy got 'best'.*use one of",
        ),
        (
            {"kafka_partition_assignment_strategy": "json:loads"},
            r"kafka\.partition\.assignment\.strategy got 'json:loads'",
        ),
        ({"assignor_options": '{"weighted": {"weight": 3}}'}, r"assignor\.options got 'weighted'.*strategy=range"),
        (
            {"kafka_partition_assignment_strategy": "weighted", "assignor_options": '{"weighted": {"load": 3}}'},
            r"assignor\.options got .*does not accept the options",
        ),
    ],
)
def test_what_is_wrong_is_named(given, told):
    with pytest.raises(OptionError, match=told):
        strategies(**given)


def test_what_is_wrong_is_named_when_the_read_is_loaded():
    given = as_options(
        kafka_partition_assignment_strategy="lag-balanced", assignor_options='{"lag-balanced": {"sped": 1}}'
    )
    with pytest.raises(OptionError, match=r"assignor\.options got .*does not accept the options"):
        KafkaGroupSource(given).schema()
