"""Check an installation, the connection to a cluster, and a user's rights in the cluster.

    from kafkagroup.doctor import examine

    for finding in examine({"bootstrap.servers": "broker:9092"}, spark=spark, topics=["orders"], group="billing"):
        print(finding)

The command `kafkagroup doctor` shows the same findings.
"""

from kafkagroup.doctor.examine import examine
from kafkagroup.doctor.versions import Finding, State

__all__ = ["Finding", "State", "examine"]
