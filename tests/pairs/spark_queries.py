"""Queries through Spark: the same steps as in `queries.py`, as far as Spark lets somebody else in between.

A stream writes by `foreachBatch`, whose function waits at the draw's moment; with `commit=sink` it is our own sink, and
the event comes between two batches.
"""

import re
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import kafkagroup
from kafka_source.errors import KafkaGroupError
from tests.pairs.draws import Draw, Moment
from tests.pairs.queries import BatchQuery, Checkpoint, JobFailed, Names, Note, Running
from tests.pairs.world import counts_in_topic

_ERROR = re.compile(r"kafka_source\.errors\.(\w+): ([^\n]*)")
SECONDS = Running.seconds


def told(error: Exception) -> Exception:
    """Our own error that an error of Spark's tells of; the error itself, if it is none of ours."""
    found = _ERROR.search(str(error))
    return error if found is None else type(found[1], (KafkaGroupError,), {})(found[2])


class Files(Checkpoint):
    """A checkpoint of Spark's, in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def put_back(self) -> bool:
        """Make it that of the first batch, with its output; False if there are no later ones."""
        later = [path for log in ("offsets", "commits") for path in self.folder.glob(f"{log}/[1-9]*")]
        if not later or not (self.folder / "commits" / "0").exists():
            return False
        for path in later:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        self.rows = {number: rows for number, rows in self.rows.items() if number == 0}
        return True


class SparkStream(Running):
    """A stream of the draw in Spark, with its checkpoint in a folder."""

    def __init__(
        self, spark: SparkSession, folder: Path, draw: Draw, names: Names, query: str = "a", note: Note | None = None
    ) -> None:
        super().__init__(draw, names, query, note)
        self._folder = folder / self.prefix
        self.checkpoint = Files(self._folder)
        # A task may outlive the run that was stopped. Spark tries tasks again, but not in local mode.
        self.may_fail = frozenset({"FencedError"} if draw.commit == "task" else ())
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._moment: Moment | None = None
        self._halted, self._released = threading.Event(), threading.Event()
        self._fails = False

    @property
    def ended(self) -> bool:
        return self._query is None

    def counts(self) -> Counter[int]:
        if self.draw.commit == "sink":
            return counts_in_topic(self.names.servers, self.names.sink)
        return super().counts()

    def start(self) -> None:
        self._fails = False
        self._released.clear()
        # Spark looks data sources up in the active session, which each thread has for itself.
        jvm = self._spark._jvm
        assert jvm is not None
        jvm.SparkSession.setActiveSession(self._spark._jsparkSession)
        frame = self._spark.readStream.format("kafkagroup").options(**self.options).load()
        if self.draw.commit == "sink":
            frame = frame.selectExpr("value", f"'{self.names.sink}' AS topic")
            writer = frame.writeStream.format("kafkagroup").options(
                **{
                    "kafka.bootstrap.servers": self.names.servers,
                    "transactional": "true",
                    "transactional.id.prefix": self.prefix,
                    "commit.group": self.names.group,
                }
            )
        else:
            writer = frame.writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self._folder))
        if self.draw.kind == "available-now":
            writer = writer.trigger(availableNow=True)
        self._query = writer.start()
        if self.draw.kind == "stream":
            # A query that starts at `latest` reads what comes from now on.
            deadline = time.monotonic() + SECONDS
            while self._query.isActive and not self._query.status["message"].startswith("Waiting"):
                if self._halted.is_set() or time.monotonic() > deadline:
                    break
                time.sleep(0.05)

    def _write(self, frame: DataFrame, number: int) -> None:
        rows = [int(row[0]) for row in frame.select("value").collect()]
        self._halt("read", rows)
        self._did("written", (number, rows))
        self._halt("written", rows)

    def _halt(self, moment: Moment, rows: list[int]) -> None:
        if self._moment == moment and rows:
            self._moment = None
            self._halted.set()
            self._released.wait(SECONDS)
            if self._fails:
                raise JobFailed

    def go_to(self, moment: Moment) -> None:
        if moment == "idle":
            # A query that runs would read.
            return
        halts = self.draw.commit != "sink" and moment in ("read", "written")
        self._halted.clear()
        self._moment = moment if halts else None
        before, deadline = self.counts(), time.monotonic() + SECONDS
        if self.ended:
            self.start()
        while not self.ended and not (self._halted.is_set() if halts else self.counts() != before):
            self._check()
            assert time.monotonic() < deadline, f"{moment} has not come"
            time.sleep(0.05)

    def finish(self) -> None:
        self._moment = None
        self._released.set()

    def poll(self) -> bool:
        """Let it read, with AvailableNow to its end; return whether it has."""
        if self.ended:
            self.start()
        before = self.counts()
        self.finish()
        if self.draw.kind == "available-now":
            assert self._query is not None
            with _ours():
                query, self._query = self._query, None
                assert query.awaitTermination(int(SECONDS))
        else:
            time.sleep(0.1)
            self._check()
        return self.counts() != before

    def _check(self) -> None:
        """Raise the error with which the query has ended, and note that an AvailableNow run has ended."""
        if self._query is not None and not self._query.isActive:
            ended, self._query = self._query, None
            error = ended.exception()
            if error is not None:
                raise told(error) from error

    def stop(self) -> None:
        if self._query is not None:
            self._fails = True
            self.finish()
            with suppress(StreamingQueryException):
                self._query.stop()
            self._query = None


class SparkBatches(BatchQuery):
    """Batch reads in Spark."""

    def __init__(
        self, spark: SparkSession, draw: Draw, names: Names, query: str = "a", note: Note | None = None
    ) -> None:
        super().__init__(draw, names, query, note)
        self._spark = spark
        self._frame: DataFrame | None = None
        self._rows: list[int] | None = None

    def start(self) -> None:
        with ExitStack() as stack, _ours():
            if self.draw.kind == "pinned":
                self._frame = stack.enter_context(kafkagroup.pinned(self._spark, self.options))
            else:
                self._frame = self._spark.read.format("kafkagroup").options(**self.options).load()
            self._rows = None
            self._block = stack.pop_all()

    def _read(self, *, whole: bool) -> list[int]:
        """Read all: Spark halts between no two tasks."""
        if self._rows is None:
            assert self._frame is not None
            with _ours():
                self._rows = [int(row[0]) for row in self._frame.select("value").collect()]
        return self._rows


class _ours:
    """A block in which errors of Spark's become ours."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PySparkException):
            raise told(error) from error
