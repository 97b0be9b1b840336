"""Options of recovery reach every client, with and without their prefix."""

from __future__ import annotations

import pytest

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.kafka_client import ConnectionSettings
from kafka_source.model.cluster_identity import check_same_cluster
from kafka_source.options import Where, parse

BASE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
TRIGGER = "metadata.recovery.rebootstrap.trigger.ms"


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize("where", [Where.BATCH, Where.STREAM, Where.SINK])
def test_they_are_taken_with_and_without_the_prefix(prefix, where):
    given = {prefix + "Metadata.Recovery.Strategy": "rebootstrap", prefix + TRIGGER: "1500"}
    base = BASE if where is not Where.SINK else {"kafka.bootstrap.servers": "127.0.0.1:1"}
    settings = Settings(parse({**base, **given}, where).kafka)
    assert ConnectionSettings.of(settings).rebootstrap_after == 1.5
    assert librdkafka_config(settings)[TRIGGER] == "1500"
    none = Settings(parse({**base, prefix + "metadata.recovery.strategy": "none"}, where).kafka)
    assert ConnectionSettings.of(none).rebootstrap_after is None
    assert librdkafka_config(none)["metadata.recovery.strategy"] == "none"


def test_the_default_is_to_start_over_after_five_minutes():
    assert ConnectionSettings.of(Settings(parse(BASE, Where.STREAM).kafka)).rebootstrap_after == 300


def test_two_values_are_refused():
    with pytest.raises(OptionError, match="which is given too"):
        parse({**BASE, TRIGGER: "1", "kafka." + TRIGGER: "2"}, Where.STREAM)
    with pytest.raises(OptionError, match="rebootstrap, none"):
        parse({**BASE, "metadata.recovery.strategy": "sometimes"}, Where.STREAM)


def test_a_wanted_move_reaches_the_clients_and_not_librdkafka():
    settings = Settings(parse({**BASE, "cluster.moved.from": "old"}, Where.STREAM).kafka)
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
