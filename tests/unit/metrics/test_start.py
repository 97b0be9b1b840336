"""Starting the metrics of a session."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_source.client_config import Settings
from kafkagroup import metrics
from kafkagroup.embedded.server_config import free_ports, is_free


def test_nothing_stays_open_if_spark_refuses_the_listener() -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("this Spark takes no listeners")

    spark: Any = SimpleNamespace(streams=SimpleNamespace(addListener=refuse))
    (port,) = free_ports(1)
    before = set(threading.enumerate())
    settings = Settings({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(RuntimeError, match="takes no listeners"):
        metrics.start(spark, prometheus=f"127.0.0.1:{port}", settings=settings)
    assert is_free(port)
    assert not [thread.name for thread in set(threading.enumerate()) - before if "kafkagroup-watch" in thread.name]
