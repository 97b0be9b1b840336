"""Starting over from `bootstrap.servers` when the known brokers are gone (KIP-899, KIP-1102)."""

from __future__ import annotations

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, RetriableError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy, pass_on
from tests.support.memberships import Memberships, everything, held
from tests.support.waiting import wait_until

METADATA = 3
REBOOTSTRAP_REQUIRED = 129


def client_of(settings):
    return KafkaClient(Settings(settings))


def ask(client, seconds=30):
    return client.run(client.metadata(["orders"], Deadline(seconds)), seconds + 5)


def test_brokers_that_moved_are_found_by_the_bootstrap_name():
    entry = TcpProxy()
    with entry, EmbeddedKafka() as kafka:
        kafka.create_topic("orders", 2)
        entry.connect_to(kafka.port(1))
        members = Memberships(Settings({"bootstrap.servers": f"127.0.0.1:{entry.port}"}), "moving")
        membership = members.make("orders")
        generation = membership.join(30).generation
        entry.cut()
        kafka.restart(1, new_ports=True)
        entry.connect_to(kafka.port(1))
        slot = membership.assignment.slots[0]
        membership.commit({0: dict.fromkeys(slot.partitions, 5)}, 60)
        assert set(membership.committed(slot.partitions).values()) == {5}
        assert membership.assignment.generation == generation
        assert held(membership) == everything("orders", 2)
        members.close()


@pytest.mark.long
def test_the_strategy_none_stays_with_the_brokers_it_knew():
    entry = TcpProxy()
    with entry, EmbeddedKafka() as kafka:
        kafka.create_topic("orders", 2)
        entry.connect_to(kafka.port(1))
        client = client_of({"bootstrap.servers": f"127.0.0.1:{entry.port}", "metadata.recovery.strategy": "none"})
        ask(client)
        entry.cut()
        kafka.restart(1, new_ports=True)
        entry.connect_to(kafka.port(1))
        with pytest.raises(RetriableError):
            ask(client, 5)
        client.close()


@pytest.mark.parametrize("strategy", ["rebootstrap", pytest.param("none", marks=pytest.mark.long)])
def test_a_broker_that_is_frozen_behind_its_address_is_left_for_the_bootstrap_name(strategy):
    entry, inner = TcpProxy(), TcpProxy()
    with entry, inner, EmbeddedKafka(advertised_ports={1: inner.port}) as kafka:
        kafka.create_topic("orders", 2)
        for proxy in (entry, inner):
            proxy.connect_to(kafka.port(1))
        client = client_of(
            {
                "bootstrap.servers": f"127.0.0.1:{entry.port}",
                "request.timeout.ms": "1000",
                "socket.connection.setup.timeout.ms": "1000",
                "metadata.recovery.rebootstrap.trigger.ms": "1500",
                "metadata.recovery.strategy": strategy,
            }
        )
        ask(client)
        entry.cut()
        wait_until(lambda: entry.connections == 0, "the cut")
        ask(client)
        assert inner.connections == 1
        inner.hold()
        if strategy == "none":
            with pytest.raises(RetriableError):
                ask(client, 6)
        else:
            assert set(ask(client, 30).topics) == {"orders"}
        inner.release()
        client.close()


def test_a_proxy_may_ask_for_it():
    proxy = TcpProxy()
    with proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        kafka.create_topic("orders", 2)
        client = client_of({"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
        ask(client)
        connections = set()
        sent: list[Frame] = []

        def demand(frame):
            if frame.api_key != METADATA:
                return [frame.payload]
            connections.add(frame.connection)
            if sent:
                return [frame.payload]
            sent.append(frame)
            # The last field of the flexible response: the error code, then an empty set of tagged fields.
            return [frame.payload[:-3] + REBOOTSTRAP_REQUIRED.to_bytes(2, "big") + b"\0"]

        proxy.on_response = demand
        assert set(ask(client).topics) == {"orders"}
        assert sent
        assert len(connections) == 2
        proxy.on_response = pass_on
        client.close()


def test_another_cluster_behind_the_name_is_refused():
    entry = TcpProxy()
    with entry, EmbeddedKafka() as one, EmbeddedKafka() as two:
        one.create_topic("orders", 2)
        two.create_topic("orders", 2)
        entry.connect_to(one.port(1))
        client = client_of({"bootstrap.servers": f"127.0.0.1:{entry.port}"})
        assert ask(client).cluster_id
        one.kill(1)
        entry.cut()
        entry.connect_to(two.port(1))
        with pytest.raises(InvalidConfigurationError, match="now leads to the cluster"):
            wait_until(lambda: ask(client), "the other cluster")
        client.close()
