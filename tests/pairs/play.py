"""Play a draw: do with a query what its story says, and tell where it does not do what the model says."""

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TypeVar, get_args

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from assignors import TopicPartition
from kafka_source.errors import KafkaGroupError, OptionError
from kafkagroup.admin import rewind_running_group
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import kill, session_of
from tests.pairs.draws import Draw
from tests.pairs.model import (
    Phase,
    Record,
    errors,
    expected,
    must_fail,
    reads_all_again,
    refused,
    rewound_while_stopped,
)
from tests.pairs.queries import Checkpoint, Names, Note, Running, check_options, open_query
from tests.pairs.world import World, code_of
from tests.support.waiting import wait_until

_PHASES: tuple[Phase, ...] = get_args(Phase)
_T = TypeVar("_T")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.pairs.play"])


class Difference(Exception):
    """The query does something else than the model."""


Open = Callable[[World, Draw, str], Running]
"""Makes a query of a draw, with a name that tells several of it apart."""


OpenElsewhere = Callable[[Draw, Names, Note], Running]
"""Makes the query in the process that is killed, where it tells what it does; it can be sent to that process."""


def without_spark(world: World, draw: Draw, query: str) -> Running:
    """A query that is driven without Spark."""
    return open_query(draw, world.names, query)


def elsewhere_without_spark(draw: Draw, names: Names, note: Note) -> Running:
    """The same in the process that is killed."""
    return open_query(draw, names, note=note)


def play(
    kafka: EmbeddedKafka,
    admin: AdminClient,
    draw: Draw,
    open_: Open = without_spark,
    open_elsewhere: OpenElsewhere = elsewhere_without_spark,
) -> str | None:
    """Play a draw; return what differs from the model, None if nothing does."""
    names = refused(draw)
    if names:
        return _refusal(kafka, draw, names)
    world = World(kafka, admin, draw)
    try:
        _Play(world, draw, open_, open_elsewhere).run()
    except Difference as difference:
        return str(difference)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        world.close()
    return None


def _refusal(kafka: EmbeddedKafka, draw: Draw, names: set[str]) -> str | None:
    try:
        check_options(draw, Names(kafka.bootstrap_servers, "refused"))
    except OptionError as error:
        return None if error.option in names else f"refused because of {error.option}, not of {sorted(names)}: {error}"
    except Exception as error:
        return f"an OptionError for one of {sorted(names)} was to come, and this came: {error!r}"
    return f"it was to be refused because of {sorted(names)}"


class _Play:
    def __init__(self, world: World, draw: Draw, open_: Open, open_elsewhere: OpenElsewhere) -> None:
        self._world, self._draw, self._open, self._open_elsewhere = world, draw, open_, open_elsewhere
        self._query = open_(world, draw, "a")
        self._other: Running | None = None
        self._errors: list[str] = []
        self._started, self._seconds = time.monotonic(), self._query.seconds
        self._removed: Counter[int] = Counter()
        self._before = expected(draw, event=False)
        self._expected = expected(draw)
        self._member: Consumer | None = None

    def run(self) -> None:
        draw, world = self._draw, self._world
        try:
            if draw.event == "kill":
                self._die()
            else:
                self._settle("first")
                world.write("second")
                self._guarded(lambda: self._query.go_to(draw.moment))
                self._event()
            if draw.has_other:
                self._read_by_other()
            self._settle("first", "second", "event")
            self._release_member()
            world.write("third")
            self._settle("first", "second", "event", "third")
            self._query.stop()
            world.write("fourth")
            self._settle(*_PHASES)
            while self._guarded(self._query.poll):
                pass
            # Spark tells a source that a batch is done when it plans the next one.
            self._wait_for_commits(self._seconds)
            self._query.stop()
            self._check()
        finally:
            self._release_member()
            self._query.stop()

    # ---- errors that must or may come

    def _guarded(self, step: Callable[[], _T]) -> _T:
        """Do a step; after an error that may come, start again as its text says."""
        while True:
            try:
                return step()
            except KafkaGroupError as error:
                self._recover(error)
            except Exception as error:
                # Spark waits 10 s for a Python process to start, which a busy machine may not do in time.
                if "failed to connect back" not in str(error) or time.monotonic() > self._started + 5 * self._seconds:
                    raise
                self._query.stop()

    def _recover(self, error: KafkaGroupError) -> None:
        name = type(error).__name__
        if name not in errors(self._draw) | self._query.may_fail or len(self._errors) > 2:
            raise Difference(f"{name} came, after {self._errors}: {error}") from error
        self._errors.append(name)
        self._query.stop()
        if name == "DataLossError":
            self._query.options["failOnDataLoss"] = "false"
        elif self._draw.event == "checkpoint put back":
            self._query.options["group.on.older.checkpoint"] = "replay"
            self._query.prefix += "-2"
        elif name == "OptionError":
            self._query.name_partition("t", 2)
        elif name == "UnknownTopicError":
            self._query.leave_out("t")
        self._release_member()

    # ---- steps

    def _counts(self) -> Counter[int]:
        counts = self._query.counts()
        return counts + self._other.counts() if self._other is not None else counts

    def _settle(self, *phases: Phase) -> None:
        """Read until all is in the output that must be, of the records of these phases."""
        expected = self._before if phases == ("first",) else self._expected
        wanted = {r: t.least for r, t in expected.items() if r.phase in phases and t.least}
        deadline = time.monotonic() + self._seconds
        while True:
            has_read = self._guarded(self._query.poll)
            counts = self._counts()
            missing = [r for r, least in wanted.items() if counts[code_of(r)] < least]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise Difference(f"missing: {_named(missing)}; {self._errors_told()}")
            if not has_read:
                time.sleep(0.02)

    def _check(self) -> None:
        world, draw = self._world, self._draw
        if draw.commit == "sink":
            found = world.records_of(world.sink_counts() - self._removed)
        else:
            found = world.records_of(self._counts())
        wrong = [
            f"{r} {found[r]} times, not {t.least} to {t.most}"
            for r, t in self._expected.items()
            if not t.least <= found[r] <= t.most
        ]
        if wrong:
            raise Difference(f"in the output: {', '.join(wrong)}; {self._errors_told()}")
        if must_fail(draw) and not self._errors:
            raise Difference(f"no error of {sorted(errors(draw))} has come")
        # A transaction's offsets are seen a moment after its end.
        if late := self._wait_for_commits(5):
            raise Difference(f"the group has {world.committed()} and not {late}; {self._errors_told()}")

    def _wait_for_commits(self, seconds: float) -> dict[TopicPartition, int]:
        """Wait until the group has committed the ends of the log; return those that it has not in time."""
        draw, world = self._draw, self._world
        if draw.membership == "none" or draw.commit == "none":
            return {}
        ends = {tp: end for tp, end in world.ends().items() if draw.membership != "assign" or tp.partition < 2}
        deadline = time.monotonic() + seconds
        while (late := dict(ends.items() - world.committed().items())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return late

    def _errors_told(self) -> str:
        return f"errors so far: {self._errors}"

    # ---- events

    def _event(self) -> None:
        draw, world, query = self._draw, self._world, self._query
        changes = {
            "partition added": world.add_partition,
            "topic deleted": world.delete_topic,
            "topic created again": world.create_again,
            "retention": world.truncate,
        }
        if draw.event in changes:
            if draw.stopped:
                query.stop()
            changes[draw.event]()
        elif draw.event == "restart":
            query.stop()
        elif draw.event == "rebalance":
            self._rebalance()
        elif draw.event == "rewind":
            self._rewind()
        elif draw.event == "beyond the end":
            query.stop()
            if draw.membership != "none":
                world.set_beyond()
            elif draw.is_stream:
                _set_beyond(query.checkpoint, world)
        elif draw.event == "checkpoint put back":
            query.stop()
            if not draw.is_stream:
                return
            if draw.commit == "sink":
                self._removed = world.sink_counts()
            if query.checkpoint.put_back() and draw.commit == "sink":
                self._removed -= query.counts()
            elif draw.commit == "sink":
                self._removed = Counter()

    def _read_by_other(self) -> None:
        """Let another query read until there is nothing new, while the query is stopped."""
        self._query.stop()
        self._other = other = self._open(self._world, replace(self._draw, kind="available-now"), "b")
        try:
            other.poll()
        except OptionError:
            # The JSON of its start does not name the partition that was added.
            assert (self._draw.event, self._draw.start) == ("partition added", "json")
        finally:
            other.stop()

    def _rewind(self) -> None:
        draw, world, query = self._draw, self._world, self._query
        if rewound_while_stopped(draw):
            query.stop()
            if draw.membership != "none":
                world.rewind()
            return
        self._while_it_reads(lambda: rewind_running_group(world.settings, world.names.group, world.rewound, timeout=30))

    def _rebalance(self) -> None:
        draw, world = self._draw, self._world
        if draw.membership == "assign":
            self._member = Consumer(
                {"bootstrap.servers": world.names.servers, "group.id": world.names.group, "enable.auto.commit": False}
            )
            self._member.subscribe([world.names.topic("u")])
            member = self._member

            def is_assigned() -> bool:
                member.poll(0.1)
                return bool(member.assignment())

            wait_until(is_assigned, "a partition of the other consumer")
            return
        other = self._open(world, draw if draw.is_stream else replace(draw, kind="stream"), "b")
        if draw.membership != "none" and not reads_all_again(draw):
            self._other = other
        joined, leave = threading.Event(), threading.Event()

        def read() -> None:
            try:
                while not leave.is_set():
                    if not other.poll():
                        leave.wait(0.02)
                    joined.set()
                other.finish()
            finally:
                joined.set()
                other.stop()

        def later() -> None:
            joined.wait(self._seconds)
            for _ in range(3):
                polled.clear()
                polled.wait(self._seconds)
            leave.set()

        polled = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            timing = pool.submit(later)
            self._while_it_reads(read, polled)
            timing.result(1)

    def _while_it_reads(self, work: Callable[[], object], polled: threading.Event | None = None) -> None:
        """Do something else while the query reads."""
        with ThreadPoolExecutor(1) as pool:
            done: Future[object] = pool.submit(work)
            deadline = time.monotonic() + self._seconds
            self._query.finish()
            while not done.done():
                if not self._guarded(self._query.poll):
                    time.sleep(0.02)
                if polled is not None:
                    polled.set()
                if time.monotonic() > deadline:
                    raise Difference("the other one has not ended in time")
            done.result()

    def _release_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None
            self._world.wait_until_empty()

    def _die(self) -> None:
        """Have a process read, with what it tells as the checkpoint, and kill it with its children at the moment."""
        ours, theirs = _processes.Pipe()
        first = [code_of(r) for r, t in self._before.items() if r.phase == "first" and t.least]
        arguments = (self._open_elsewhere, self._draw, self._world.names, theirs, first)
        process = _processes.Process(target=_read_until_killed, args=arguments)
        process.start()
        theirs.close()
        assert process.pid is not None
        try:
            while True:
                try:
                    what, value = ours.recv()
                except EOFError:
                    process.join(10)
                    raise Difference(f"the process has ended with {process.exitcode}") from None
                if what == "first is read":
                    self._world.write("second")
                    ours.send("go on")
                elif what == "error":
                    raise Difference(f"in the process to be killed: {value}")
                elif what == "moment has come":
                    break
                else:
                    self._query.checkpoint.note(what, value)
        finally:
            kill(session_of(process.pid))
            process.kill()
            process.join(10)
            ours.close()


def _read_until_killed(
    open_elsewhere: OpenElsewhere, draw: Draw, names: Names, pipe: Connection, first: list[int]
) -> None:
    os.setsid()
    try:
        query = open_elsewhere(draw, names, lambda what, value: pipe.send((what, value)))
        deadline = time.monotonic() + query.seconds
        while True:
            has_read = query.poll()
            if set(first) <= query.counts().keys():
                break
            if time.monotonic() > deadline:
                raise Difference("the first records have not come")
            if not has_read:
                time.sleep(0.02)
        pipe.send(("first is read", None))
        pipe.recv()
        query.go_to(draw.moment)
        pipe.send(("moment has come", None))
        pipe.recv()
    except Exception as error:
        pipe.send(("error", repr(error)))


def _set_beyond(checkpoint: Checkpoint, world: World) -> None:
    """Without a group: let the newest offset of the checkpoint be beyond the end."""
    from tests.pairs.model import BEYOND

    partitions = checkpoint.offsets[-1].get("partitions", {}).get(world.names.topic("t"), {})
    if "0" in partitions and not checkpoint.in_flight:
        partitions["0"][1] = BEYOND


def _named(records: Collection[Record]) -> str:
    return ", ".join(map(str, sorted(records)))
