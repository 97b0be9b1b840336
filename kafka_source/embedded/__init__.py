"""A real Kafka for demos and tests: one broker or a cluster of three, as local processes.

    from kafka_source.embedded import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", partitions=4)
        ...  # kafka.bootstrap_servers

Needs Java 17 or newer and pyspark; Kafka's jars are downloaded once into a cache folder.
"""

from kafka_source.embedded.cluster import EmbeddedKafka
from kafka_source.embedded.errors import BrokerError, EmbeddedKafkaError, JarsError, JavaError
from kafka_source.embedded.jars import kafka_jars, resolve
from kafka_source.embedded.security import Security
from kafka_source.embedded.tcp_proxy import CutConnection, Frame, TcpProxy
from kafka_source.embedded.tools import class_path, java_command, run_java

__all__ = [
    "BrokerError",
    "CutConnection",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "Frame",
    "JarsError",
    "JavaError",
    "Security",
    "TcpProxy",
    "class_path",
    "java_command",
    "kafka_jars",
    "resolve",
    "run_java",
]
