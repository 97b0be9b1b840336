"""A real Kafka for demos and tests: one broker or a cluster of three, as local processes.

    from kafkagroup.embedded import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", partitions=4)
        ...  # kafka.bootstrap_servers

Needs Java 17 or newer and pyspark; Kafka's jars are downloaded once into a cache folder.
"""

from kafkagroup.embedded.cluster import EmbeddedKafka
from kafkagroup.embedded.jars import kafka_jars, resolve
from kafkagroup.embedded.java import BrokerError, EmbeddedKafkaError, JarsError, JavaError
from kafkagroup.embedded.security import Security
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame, TcpProxy
from kafkagroup.embedded.tools import class_path, java_command, run_java

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
