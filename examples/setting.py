"""Shared by all examples: a Kafka, a Spark session, and a topic with orders."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from kafka_source.embedded import EmbeddedKafka

ORDERS = "orders"
PARTITIONS = 4
ORDER = "id int, customer string, product string, amount double"


@contextmanager
def kafka(servers: str | None = None) -> Iterator[str]:
    """Yield the bootstrap servers of a Kafka: `servers`, or those of an embedded Kafka that runs during the block."""
    if servers:
        make_topic(servers)
        yield servers
        return
    with EmbeddedKafka() as embedded:
        embedded.create_topic(ORDERS, PARTITIONS)
        yield embedded.bootstrap_servers


def make_topic(servers: str, topic: str = ORDERS) -> None:
    """Create a topic if it does not exist."""
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(topic, PARTITIONS)], operation_timeout=30)[topic]
    try:
        made.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


@contextmanager
def spark(name: str) -> Iterator[SparkSession]:
    """Yield a local Spark session with two cores, whose Python workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.appName(name)
        .master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Saves about 40 ms per task with Spark 4.1 and later; older versions ignore it.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def produce(servers: str, count: int, *, first: int = 0, topic: str = ORDERS) -> None:
    """Write `count` orders as JSON, keyed by customer; the same arguments give the same orders."""
    chance = random.Random(first)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for number in range(first, first + count):
        customer = f"customer-{chance.randrange(200)}"
        order = {
            "id": number,
            "customer": customer,
            "product": chance.choice(["tea", "coffee", "cocoa"]),
            "amount": round(chance.uniform(1, 90), 2),
        }
        producer.produce(topic, key=customer, value=json.dumps(order))
        producer.poll(0)
    producer.flush(30)
