"""A query that is given the id of a group which is no consumer group: the error names the kind."""

from __future__ import annotations

import pytest

from assignors import Subscription, encode_subscription
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group import GenericMember, MemberSettings
from kafkagroup.admin import Groups
from tests.apps.process import java_app
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("protocol_type", "protocol", "told"),
    [
        ("connect", "sessioned", "Kafka Connect cluster"),
        ("consumer", "stream", "Kafka Streams application"),
        ("workers", "v1", "protocol type workers"),
    ],
)
def test_groups_of_the_classic_protocol_are_named(kafka, members, topic, group, protocol_type, protocol, told):
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    of_kind = MemberSettings(group, protocol_type=protocol_type)
    # Brokers read the metadata of members with the protocol type of consumers.
    metadata = encode_subscription(Subscription(("orders",)))
    with GenericMember(settings, of_kind, {protocol: metadata}, lambda _, said: dict.fromkeys(said, b"")) as other:
        assert other.wait(30) is not None
        with pytest.raises(InvalidConfigurationError, match=f"Group {group} is .*{told}.*kafka.group.id of its own"):
            members.make(topic("orders"), slots=1).join(30)


def test_a_share_group_is_named(kafka, members, topic, group, tmp_path):
    orders = topic("orders", partitions=1)
    with java_app("ShareConsumer", tmp_path, kafka.bootstrap_servers, group, orders) as sharing:
        sharing.wait_for("polled")
        # It polls before the coordinator has made its group.
        groups = Groups(members.config)
        wait_until(lambda: [one.group for one in groups.list(types=["share"]) if one.group == group], "the share group")
        with pytest.raises(InvalidConfigurationError, match=f"Group {group} is a share group"):
            members.make(orders, slots=1).join(30)
