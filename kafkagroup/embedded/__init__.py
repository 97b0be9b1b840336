"""A real Kafka for demos and tests: one broker or a cluster of three, as local processes.

    from kafkagroup.embedded import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", partitions=4)
        ...  # kafka.bootstrap_servers

Java 17 or newer and pyspark are needed. The first start downloads Kafka's jars into a cache folder.
"""

# Provisional names are re-exported by `name as name`, in the same statements as the public ones.
# ruff: noqa: I001

from kafkagroup.embedded.cluster import EmbeddedKafka
from kafkagroup.embedded.jars import kafka_jars as kafka_jars, resolve as resolve
from kafkagroup.embedded.java import (
    BrokerError as BrokerError,
    EmbeddedKafkaError,
    JarsError as JarsError,
    JavaError as JavaError,
)
from kafkagroup.embedded.schema_registry import SchemaRegistry as SchemaRegistry
from kafkagroup.embedded.security import Security
from kafkagroup.embedded.tcp_proxy import CutConnection as CutConnection, Frame as Frame, TcpProxy as TcpProxy
from kafkagroup.embedded.tools import class_path as class_path, java_command as java_command, run_java as run_java

__all__ = ["EmbeddedKafka", "EmbeddedKafkaError", "Security"]
