"""Brokers that advertise an address which nobody reaches: the first mistake with containers."""

from __future__ import annotations

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import RetriableError
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.server_config import free_ports


def test_the_error_names_the_address_and_the_setting_that_it_comes_from() -> None:
    (nowhere,) = free_ports(1)
    with EmbeddedKafka(advertised_ports={1: nowhere}) as kafka:
        kafka.create_topic("orders", 1)
        settings = {"bootstrap.servers": f"127.0.0.1:{kafka.port(1)}", "default.api.timeout.ms": "4000"}
        cluster = Cluster(Settings(settings))
        try:
            with pytest.raises(RetriableError, match=rf"127\.0\.0\.1:{nowhere} .*advertised\.listeners"):
                orders = [TopicPartition("orders", 0)]
                cluster.bounds(orders, orders, read_committed=False)
        finally:
            cluster.close()
