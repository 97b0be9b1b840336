"""Check an installation, the way to a cluster and the rights there.

    from kafkagroup.doctor import examine

    for finding in examine({"bootstrap.servers": "broker:9092"}, spark=spark, topics=["orders"], group="billing"):
        print(finding)

The command `kafkagroup doctor` shows the same findings.
"""

from kafkagroup.doctor.examine import examine
from kafkagroup.doctor.versions import Finding, State

__all__ = ["Finding", "State", "examine"]
