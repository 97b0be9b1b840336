"""Makes each mistake of catalog.py in a real Spark, on real Kafkas, and writes answers.md.

    ./run python -m tests.mistakes.attempts

It takes five minutes. With `connect SERVERS TOPIC` it makes ten of them over Spark Connect and prints the rows as JSON:
a process has one kind of session, so it calls itself for these.
"""

import dataclasses
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from kafkagroup.embedded import EmbeddedKafka, Security
from tests.mistakes.catalog import CONNECT, MISTAKES, OVER_CONNECT, PAGE, At, How, Mistake, Row, page

ROOT = Path(__file__).parents[2]
SERVERS = "broker:9092"
PASSWORD = secrets.token_hex(8)
SECONDS = 120
# Rights of each user, beside what the name says; `nobody` has none.
RIGHTS = {
    "reader": [("topic", "READ", "orders")],
    "member": [("topic", "READ", "orders"), ("group", "READ", "*")],
    "writer": [("topic", "READ", "orders"), ("topic", "WRITE", "enriched")],
}

_FRAME = re.compile(r' *File "([^"]+)", line \d+')
_OURS = re.compile(r"/(?:kafka_source|kafkagroup)/")
_SENTENCE = re.compile(r"(?:^|: )kafka_source\.errors\.\w+: (.*)")
# What Spark, the JVM and Python write between and after lines of ours.
_THEIRS = re.compile(r"\s*$|\s*SQLSTATE|\tat |\s*Traceback|Caused by|=== |\[[A-Z_]+\]|JVM stacktrace|During handling")


def sentence_of(text: str) -> tuple[str, int]:
    """Return our sentence in what a user sees of an error in a query, and how many lines of it are ours.

    Raises:
        LookupError: There is no sentence of ours, or there are several.
    """
    sentences, lines, ours = [], 0, False
    for line in text.splitlines():
        if found := _SENTENCE.search(line):
            sentences.append(found[1])
            ours = True
        elif frame := _FRAME.match(line):
            ours = _OURS.search(frame[1]) is not None
        elif _THEIRS.match(line):
            ours = False
        lines += ours
    if len(sentences) != 1:
        raise LookupError(f"{len(sentences)} sentences of ours in: {text}")
    return sentences[0], lines


def last_line_of(text: str) -> tuple[str, int]:
    """Return the last line of what a program of ours says when it ends, and how many lines it says."""
    lines = [line for line in text.splitlines() if line.strip()]
    frames = [line for line in lines if _FRAME.match(line)]
    # Two lines for each frame of others, and the first line of a traceback.
    theirs = 2 * len([line for line in frames if not _OURS.search(line)]) + bool(frames)
    return lines[-1], len(lines) - theirs


class Attempts:
    """Makes mistakes in one session of Spark.

    Args:
        spark: The session, classic or of Spark Connect.
        kafkas: The Kafka of each kind, with the topic `orders` (or one of the name `topic`) in those that are open.
        folder: For checkpoints.
        topic: What the topic `orders` is called.
    """

    def __init__(
        self, spark: SparkSession, kafkas: Mapping[At, Callable[[str], dict[str, str]]], folder: Path, topic: str
    ) -> None:
        self._spark = spark
        self._kafkas = kafkas
        self._folder = folder
        self._topic = topic
        self._attempts = 0

    def warm_up(self) -> None:
        """Read, write and stream once: a mistake would wait for what a session does the first time."""
        options = self._connection(Mistake(""))
        self._spark.read.format("kafkagroup").options(subscribe=self._topic, **options).load().collect()
        self._copy({"topic": self._topic, **options}, str(self._folder / "warm"))

    def row(self, mistake: Mistake) -> Row:
        """Make a mistake and return what came of it.

        Raises:
            LookupError: Nothing refuses it, or there is no sentence of ours.
        """
        prepared = self._prepared(mistake)
        began = time.monotonic()
        text = self._error(mistake, *prepared)
        seconds = time.monotonic() - began
        sentence, count = sentence_of(text) if mistake.how not in (How.COMMAND, How.PYTHON) else last_line_of(text)
        connection = self._connection(mistake)
        known = {
            connection["kafka.bootstrap.servers"]: SERVERS,
            self._topic: "orders",
            self._group: "billing",
            str(ROOT): "/project",
        }
        for here, there in known.items():
            sentence = sentence.replace(here, there)
        return Row(mistake.section, mistake.shown, sentence, count, round(seconds, 1))

    def _connection(self, mistake: Mistake) -> dict[str, str]:
        return self._kafkas[At.OPEN if mistake.at is At.NONE else mistake.at](mistake.user)

    def _prepared(self, mistake: Mistake) -> tuple[dict[str, str], str]:
        """Return the options and the checkpoint of a mistake; run the query before that has written the checkpoint."""
        given = mistake.options
        if given.get("kafka.bootstrap.servers") == SERVERS:
            given = {**given, **self._connection(mistake)}
        self._attempts += 1
        checkpoint = str(self._folder / str(self._attempts))
        if mistake.how is How.AGAIN:
            right = {name: text for name, text in mistake.base.items() if name in mistake.typed}
            self._stream(self._named({**given, **right}), checkpoint)
        return self._named(given), checkpoint

    @property
    def _group(self) -> str:
        """A group that has committed nothing."""
        return f"billing-{self._attempts}"

    def _named(self, options: dict[str, str]) -> dict[str, str]:
        here = {"orders": self._topic, "billing": self._group}
        return {name: re.sub("orders|billing", lambda found: here[found[0]], text) for name, text in options.items()}

    def _error(self, mistake: Mistake, options: dict[str, str], checkpoint: str) -> str:
        if mistake.how is How.COMMAND:
            here = {**self._connection(mistake), **mistake.typed}
            settings = {name.removeprefix("kafka."): text for name, text in here.items()}
            command = ["bash", "-c", mistake.body.replace(SERVERS, settings["bootstrap.servers"])]
            return _run(command) if mistake.at is At.NONE else _run(command, settings)
        if mistake.how is How.PYTHON:
            return _run([sys.executable, "-c", mistake.body])
        try:
            if mistake.how is How.BATCH:
                self._spark.read.format("kafkagroup").options(**options).load().collect()
            elif mistake.how is How.WRITE:
                frame = self._spark.sql(f"SELECT {mistake.body} FROM range(1)")
                frame.write.format("kafkagroup").options(**options).mode("append").save()
            elif mistake.how is How.COPY:
                self._copy(options, checkpoint)
            elif mistake.how is How.DELETED:
                self._lose_topic(options, checkpoint)
            else:
                self._stream(options, checkpoint)
        except Exception as error:
            # Over Spark Connect the JVM's own text is behind it.
            return str(error).partition("JVM stacktrace:")[0]
        raise LookupError(f"nothing refuses {mistake.shown}")

    def _stream(self, options: dict[str, str], checkpoint: str) -> None:
        reader = self._spark.readStream.format("kafkagroup").options(startingOffsets="earliest", **options)
        self._to_end(reader.load().writeStream.format("noop"), checkpoint)

    def _lose_topic(self, options: dict[str, str], checkpoint: str) -> None:
        rows = self._spark.readStream.format("kafkagroup").options(startingOffsets="earliest", **options).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        while query.lastProgress is None:
            time.sleep(0.1)
        admin = AdminClient({"bootstrap.servers": options["kafka.bootstrap.servers"]})
        admin.delete_topics([options["subscribe"]])[options["subscribe"]].result()
        self._await(query)

    def _copy(self, options: dict[str, str], checkpoint: str) -> None:
        login = {name: text for name, text in options.items() if name.startswith(("kafka.bootstrap", "kafka.s"))}
        frame = self._spark.readStream.format("kafkagroup").options(subscribe=self._topic, **login).load()
        self._to_end(frame.select("value").writeStream.format("kafkagroup").options(**options), checkpoint)

    def _to_end(self, writer: DataStreamWriter, checkpoint: str) -> None:
        self._await(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())

    def _await(self, query: StreamingQuery) -> None:
        try:
            if not query.awaitTermination(SECONDS):
                raise LookupError(f"no error within {SECONDS} s")
        finally:
            query.stop()


def _run(command: list[str], settings: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return what a program prints, from another folder than that of the project.

    Args:
        command: The program with its arguments.
        settings: The client's, as JSON in SETTINGS and in the file of KAFKAGROUP_COMMAND_CONFIG.
    """
    environment = {**os.environ, "BIN": str(Path(sys.executable).parent), "SETTINGS": json.dumps(dict(settings))}
    for name in ("PYSPARK_PYTHON", "PYTHONPATH"):
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        if settings:
            file = Path(folder, "client.properties")
            file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
            environment["KAFKAGROUP_COMMAND_CONFIG"] = str(file)
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip() or done.stdout.strip()


@contextmanager
def kafkas() -> Iterator[dict[At, Callable[[str], dict[str, str]]]]:
    """Start a Kafka of each kind, with the topics; yield the options with which a user connects to them."""
    users = dict.fromkeys(("nobody", *RIGHTS), PASSWORD)
    with (
        EmbeddedKafka() as open_to_all,
        EmbeddedKafka(security=Security("SASL_PLAINTEXT", users, acls=True)) as guarded,
        EmbeddedKafka(security=Security("SSL")) as encrypted,
        EmbeddedKafka(advertised_ports={1: 9}) as elsewhere,
    ):
        for kafka in (open_to_all, guarded, elsewhere):
            for topic in ("orders", "enriched", "payments", "parcels"):
                kafka.create_topic(topic, 2)
            producer = Producer({"bootstrap.servers": kafka.internal_bootstrap_servers})
            for number in range(3):
                producer.produce("orders", f"order {number}".encode())
            producer.produce("parcels", b"parcel")
            if producer.flush(60):
                raise RuntimeError("the orders were not written")
        for user, rights in RIGHTS.items():
            for resource, operation, name in rights:
                guarded.allow(user, operation, resource=resource, name=name)

        def login(user: str) -> dict[str, str]:
            servers = {"kafka.bootstrap.servers": guarded.bootstrap_servers}
            if not user:
                return servers
            known = user if user in users else "reader"
            options = {f"kafka.{name}": text for name, text in guarded.java_client_config(known).items()}
            if user not in users:
                jaas = "kafka.sasl.jaas.config"
                options[jaas] = options[jaas].replace(PASSWORD, secrets.token_hex(8))
            return options

        yield {
            At.OPEN: lambda _: {"kafka.bootstrap.servers": open_to_all.bootstrap_servers},
            At.RIGHTS: login,
            At.ELSEWHERE: lambda _: {"kafka.bootstrap.servers": f"127.0.0.1:{elsewhere.port(1)}"},
            At.TLS: lambda _: {"kafka.bootstrap.servers": encrypted.bootstrap_servers},
        }


def session(builder: SparkSession.Builder) -> SparkSession:
    """Return a quiet session on the loopback."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Makes Spark Connect bind a free port in place of 15002, and its client find it.
    os.environ["SPARK_TESTING"] = "1"
    for name in ("spark.driver.host", "spark.driver.bindAddress", "spark.connect.grpc.binding.address"):
        builder = builder.config(name, "127.0.0.1")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def all_rows() -> list[Row]:
    """Make all mistakes, and the ten over Spark Connect in another process."""
    with kafkas() as connections, tempfile.TemporaryDirectory() as folder:
        spark = session(SparkSession.builder.master("local[2]"))
        spark.sparkContext.setLogLevel("OFF")
        attempts = Attempts(spark, connections, Path(folder), "orders")
        attempts.warm_up()
        rows = [attempts.row(mistake) for mistake in MISTAKES]
        spark.stop()
        servers = connections[At.OPEN]("")["kafka.bootstrap.servers"]
        connect = [sys.executable, "-m", "tests.mistakes.attempts", "connect", servers]
        done = subprocess.run(connect, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return rows + [Row(*fields) for fields in json.loads(done.stdout.splitlines()[-1])]


def over_connect(spark: SparkSession, servers: str, topic: str, *, warm: bool = False) -> list[Row]:
    """Make the ten mistakes in a session of Spark Connect; `orders` is called `topic`."""
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(spark, {At.OPEN: lambda _: {"kafka.bootstrap.servers": servers}}, Path(folder), topic)
        if warm:
            attempts.warm_up()
        return [dataclasses.replace(attempts.row(mistake), section=CONNECT) for mistake in OVER_CONNECT]


def main(kind: str = "", servers: str = "") -> None:
    """Write the page; or, with `connect`, print the rows of the mistakes over Spark Connect."""
    if kind != "connect":
        PAGE.write_text(page(all_rows()))
        return
    spark = session(SparkSession.builder.remote("local[2]"))
    rows = over_connect(spark, servers, "orders", warm=True)
    sys.stdout.write(json.dumps([dataclasses.astuple(row) for row in rows]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
