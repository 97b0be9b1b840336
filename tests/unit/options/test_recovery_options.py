"""Options of recovery reach every client, with and without their prefix."""

import pytest

from kafka_source.client_config import librdkafka_config
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.kafka_client import ConnectionSettings
from kafka_source.model.identity import check_same_cluster
from kafka_source.options import CommonOptions, Where, check_read, check_sink

BASE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
TRIGGER = "metadata.recovery.rebootstrap.trigger.ms"


def parse(given: dict[str, str], where: Where = Where.STREAM) -> CommonOptions:
    return check_sink(given).options if where is Where.SINK else check_read(given, where).options


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize("where", [Where.BATCH, Where.STREAM, Where.SINK])
def test_they_are_taken_with_and_without_the_prefix(prefix, where):
    given = {prefix + "Metadata.Recovery.Strategy": "rebootstrap", prefix + TRIGGER: "1500"}
    base = BASE if where is not Where.SINK else {"kafka.bootstrap.servers": "127.0.0.1:1"}
    settings = parse({**base, **given}, where).settings
    assert ConnectionSettings.of(settings).rebootstrap_after == 1.5
    assert librdkafka_config(settings)[TRIGGER] == "1500"
    none = parse({**base, prefix + "metadata.recovery.strategy": "none"}, where).settings
    assert ConnectionSettings.of(none).rebootstrap_after is None
    assert librdkafka_config(none)["metadata.recovery.strategy"] == "none"


def test_the_default_is_to_start_over_after_five_minutes():
    assert ConnectionSettings.of(parse(BASE).settings).rebootstrap_after == 300


def test_two_values_are_refused():
    with pytest.raises(OptionError, match="which is given too"):
        parse({**BASE, TRIGGER: "1", "kafka." + TRIGGER: "2"})
    with pytest.raises(OptionError, match="rebootstrap, none"):
        parse({**BASE, "metadata.recovery.strategy": "sometimes"})


def test_a_wanted_move_reaches_the_clients_and_not_librdkafka():
    settings = parse({**BASE, "cluster.moved.from": "old"}).settings
    assert ConnectionSettings.of(settings).moved_from == "old"
    assert "cluster.moved.from" not in librdkafka_config(settings)


@pytest.mark.parametrize(
    ("known", "found", "moved_from"), [(None, "b", None), ("a", None, None), ("a", "a", None), ("a", "b", "a")]
)
def test_the_same_cluster_and_a_wanted_one_go_by(known, found, moved_from):
    check_same_cluster(known, found, servers="s", moved_from=moved_from)


@pytest.mark.parametrize("moved_from", [None, "b", "c"])
def test_another_cluster_is_told_with_both_ids(moved_from):
    with pytest.raises(InvalidConfigurationError, match=r"cluster aaa.*cluster bbb.*cluster\.moved\.from=aaa"):
        check_same_cluster("aaa", "bbb", servers="s", moved_from=moved_from)
