"""Checks an installation, the way to a cluster and the rights there, and changes nothing.

    from kafka_source.doctor import examine

    for finding in examine({"bootstrap.servers": "broker:9092"}, spark=spark, topics=["orders"], group="billing"):
        print(finding)

The command `kafkagroup doctor` shows the same findings.
"""

from kafka_source.doctor.examine import examine
from kafka_source.doctor.finding import Finding, State

__all__ = ["Finding", "State", "examine"]
