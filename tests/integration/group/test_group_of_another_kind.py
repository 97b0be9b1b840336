"""A query that is given the id of a group which is no consumer group: the error names the kind."""

from __future__ import annotations

import pytest

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.admin import Groups
from tests.apps.process import java_app
from tests.support.waiting import wait_until


def test_a_share_group_is_named(kafka, members, topic, group, tmp_path):
    orders = topic("orders", partitions=1)
    with java_app("ShareConsumer", tmp_path, kafka.bootstrap_servers, group, orders) as sharing:
        sharing.wait_for("polled")
        # It polls before the coordinator has made its group.
        groups = Groups(members.config)
        wait_until(lambda: [one.group for one in groups.list(types=["share"]) if one.group == group], "the share group")
        with pytest.raises(InvalidConfigurationError, match=f"Group {group} is a share group"):
            members.make(orders, slots=1).join(30)
