"""YARN of real processes on this machine: a ResourceManager and a NodeManager, from Hadoop's jar for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kafkagroup.embedded import resolve
from testbed.spark_cluster import LOOPBACK, SPARK, free_port, server_process

#: The version of Hadoop in pyspark 4.3, and BouncyCastle, which the shaded jar leaves out.
JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.bouncycastle:bcprov-jdk18on:1.80",
    "org.bouncycastle:bcpkix-jdk18on:1.80",
    "org.bouncycastle:bcutil-jdk18on:1.80",
)
_SERVERS = {
    "resourcemanager.ResourceManager": "Transitioned to active state",
    "nodemanager.NodeManager": "Registered with ResourceManager as",
}
_LOG = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
"""


class YarnCluster:
    """YARN with one node, whose NodeManager kills a container that takes more memory than it has requested.

    Args:
        folder: The folder for settings in `conf`, containers' output in `logs`, and the containers' folders.
        environment: The environment of the servers.
    """

    master = "yarn"

    def __init__(self, folder: Path, *, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment

    def __enter__(self) -> YarnCluster:
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        addresses = [f"resourcemanager.{name}" for name in names]
        addresses += [f"nodemanager.{name}" for name in ("address", "localizer.address", "webapp.address")]
        properties = {f"yarn.{name}": f"{LOOPBACK}:{free_port()}" for name in addresses} | {
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.scheduler.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
            ),
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.vmem-check-enabled": "false",
            # Containers get these variables of the servers' environment.
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,SPARK_LOCAL_IP",
            "yarn.nodemanager.container-monitor.interval-ms": "500",
            "yarn.nodemanager.local-dirs": str(self._folder / "local"),
            "yarn.nodemanager.log-dirs": str(self._folder / "logs"),
            # With this check, a NodeManager would run no containers if the disk is 90 % full.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "hadoop.tmp.dir": str(self._folder / "tmp"),
        }
        listed = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()
        )
        settings = self._folder / "conf"
        settings.mkdir(exist_ok=True)
        for name in ("core-site.xml", "yarn-site.xml"):
            (settings / name).write_text(f"<configuration>{listed}</configuration>")
        (settings / "log4j2.properties").write_text(_LOG)
        classes = os.pathsep.join(map(str, (settings, *resolve(JARS), SPARK / "jars" / "*")))
        with ExitStack() as resources:
            for name, ready in _SERVERS.items():
                command = ["java", "-Xmx256m", "-cp", classes, f"org.apache.hadoop.yarn.server.{name}"]
                log = self._folder / f"{name}.log"
                resources.enter_context(server_process(command, log, self._environment, ready))
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()
