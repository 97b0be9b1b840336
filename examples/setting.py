"""Functions for all examples: start a Kafka and a Spark session, and write orders to a topic."""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka

ORDERS = "orders"
PARTITIONS = 4
ORDER = "id int, customer string, product string, amount double"


@contextmanager
def kafka(servers: str | None = None) -> Iterator[str]:
    """Yield `servers`, or the bootstrap servers of an embedded Kafka that runs during the block."""
    if servers:
        make_topic(servers)
        yield servers
        return
    with EmbeddedKafka() as embedded:
        embedded.create_topic(ORDERS, PARTITIONS)
        yield embedded.bootstrap_servers
    spec = sys.modules["__main__"].__spec__
    program = "" if spec is None else spec.name
    if program.startswith("examples.") and program != "examples.demo":
        print(f"On your own Kafka (the example creates the topic {ORDERS}): ./run python -m {program} HOST:9092")


def make_topic(servers: str, topic: str = ORDERS) -> None:
    """Create a topic if it does not exist."""
    # Hide lines of level 6: on a busy machine, a closing client logs that it drops an event.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 5})
    made = admin.create_topics([NewTopic(topic, PARTITIONS)], operation_timeout=30)[topic]
    try:
        made.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


@contextmanager
def spark(name: str) -> Iterator[SparkSession]:
    """Yield a local Spark session with two cores, whose Python workers run this Python.

    The standard error of Spark and its workers goes to a file, which is shown if the block fails. A starting Spark
    logs warnings about the machine, and the workers of a stopping Spark log warnings about closed connections.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.NamedTemporaryFile(prefix="spark-", suffix=".log"))
        stack.push(partial(_show_if_failing, Path(log.name)))
        with _standard_error_to(log.fileno()):
            session = _session(name)
        stack.callback(session.stop)
        yield session


def _session(name: str) -> SparkSession:
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
    return session


@contextmanager
def _standard_error_to(file: int) -> Iterator[None]:
    """Write the standard error of processes that start in the block to a file."""
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _show_if_failing(log: Path, kind: type[BaseException] | None, *_: object) -> None:
    if kind is not None:
        print(log.read_text(errors="replace")[-5000:], file=sys.stderr)


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


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"This took longer than {seconds} s; see the messages above.")
        time.sleep(0.3)
