"""Virtual time, processes that run only when the scheduler lets them, and replacements for the machine under our code.

One thing happens at a time. An event is a callback at a point of virtual time; events of the same time run in the order
in which they were made. A `Process` stands for a process of an operating system. Its coroutines run on a `ProcessLoop`,
an asyncio loop whose clock is the world's. Code that blocks runs in a greenlet, which waits by giving the turn back to
the scheduler. A frozen process keeps its events until it thaws; a killed process loses its events.

`World.installed` replaces the parts of the machine that our code uses: the clock, random numbers, the event loop's
thread, blocking sockets, Spark's TaskContext, and the caches of a process. Code on other threads keeps the real parts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import heapq
import importlib
import itertools
import math
import os
import pickle
import random
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from unittest import mock

import greenlet
from pyspark import TaskContext

from kafka_source.cluster import lookup
from kafka_source.commits import keeper
from kafka_source.group import model
from kafka_source.group.siblings import Siblings
from kafka_source.kafka_client import RequestConnection, blocking_connection
from kafka_source.kafka_client import client as client_module
from kafka_source.produce.native_producer import NativeProducer
from kafka_source.runtime import logs, spark_processes
from kafka_source.sink import exactly_once
from kafka_source.source import batch

_T = TypeVar("_T")

# The wall clock at the beginning of each world, in seconds since 1970. Any time will do.
BEGIN = 1_700_000_000.0
# More events than this at one time of the clock come from a loop that never waits.
_MAX_EVENTS_AT_ONCE = 50_000


class Died(BaseException):
    """Raised in a greenlet of a killed process when the greenlet would wait, or when the world is taken down."""


class Stuck(AssertionError):
    """Code runs without end in one moment of virtual time."""


class Link(Protocol):
    """The side of a connection at the process that has opened it."""

    closed: bool

    def client_writes(self, data: bytes) -> None:
        """Send bytes to the broker."""

    def end(self) -> None:
        """End the connection; the peer may still have bytes from it."""


class Network(Protocol):
    """Connects processes to brokers."""

    async def connect(
        self, process: Process, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect a process to a broker, like `create_connection` of a loop."""

    def connect_blocking(self, process: Process, host: str, port: int) -> Socket:
        """Connect code that blocks to a broker."""


@dataclass
class Task:
    """The contents of Spark's TaskContext.

    Attributes:
        awaited: Whether Spark waits for this attempt; false after its job has ended.
    """

    partition: int
    attempt: int
    properties: Mapping[str, str]
    awaited: bool = True

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)


class Call(Generic[_T]):
    """Code that runs in another process, and its result. If that process dies, there is no result.

    Attributes:
        done: Whether it has ended.
        waiting: The wait for the end of the code or of its process.
    """

    def __init__(self, process: Process, work: Callable[[], _T]) -> None:
        self._process, self._work = process, work
        self.done = False
        self.waiting: Waiting | None = None
        self._error: Exception | None = None
        self._result: list[_T] = []

    def run(self) -> None:
        """Run the code in the process."""
        try:
            self._result.append(self._work())
        except Exception as error:
            self._error = error
        except Died:
            return
        self.done = True
        self._process.calls.remove(self)
        self.wake()

    def wake(self) -> None:
        """Wake the code that waits for this call."""
        if self.waiting is not None:
            self.waiting.resume()

    def result(self) -> _T:
        """Return the result of the call that is done, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


class Event:
    """A callback at a point of virtual time, unless it is cancelled; asyncio uses the event as its handle."""

    __slots__ = ("args", "call", "loop", "process")

    def __init__(
        self,
        call: Callable[..., object],
        args: tuple[Any, ...],
        process: Process | None,
        loop: ProcessLoop | None = None,
    ) -> None:
        self.call: Callable[..., object] | None = call
        self.args, self.process, self.loop = args, process, loop

    def cancel(self) -> None:
        self.call = None


class World:
    """The scheduler of a simulated world.

    Attributes:
        now: The virtual time in seconds.
        random: The source of all random choices in the world.
        story: The past events, as (time, process or broker, text).
        broke: Whether the story has an event that must not happen.
        network: Connects processes to brokers.
        hub: The greenlet of the scheduler.
        side_processes: The processes that our code has started beside Spark's processes.
        later: The starts of queries, such as `query-0.2`, that run a later version of the package (`versions.py`).
    """

    network: Network
    active: ClassVar[World]
    """The world in which our code runs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.story: list[tuple[float, str, str]] = []
        self.steps = 0
        self.broke = False
        self.current: Process | None = None
        # The events of the current moment, in order, and the later events.
        self._soon: deque[Event] = deque()
        self._later: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()
        self._processes: list[Process] = []
        self.side_processes: list[Process] = []
        self.later: set[str] = set()
        self.hub: greenlet.greenlet | None = None
        self._at_once = 0
        self.sockets: dict[int, Socket] = {}

    # ---- events

    def after(
        self, seconds: float, call: Callable[..., object], process: Process | None = None, *args: object
    ) -> Event:
        """Call a function after this number of seconds; the call is lost if `process` is killed before."""
        event = Event(call, args, process)
        self.add(seconds, event)
        return event

    def add(self, seconds: float, event: Event) -> None:
        """Schedule an event after this number of seconds."""
        when = self.now + seconds
        if when > self.now:
            heapq.heappush(self._later, (when, next(self._numbers), event))
        else:
            self._soon.append(event)

    def add_now(self, event: Event) -> None:
        """Schedule an event at this moment, after all other events of this moment."""
        self._soon.append(event)

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now, who, what))
        self.broke |= what.startswith(("BROKE", "UNHANDLED"))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run events until a point of time, or until `done`."""
        self.hub = greenlet.getcurrent()
        soon, later, running = self._soon, self._later, None
        try:
            while (soon or later) and not done():
                # Events that were scheduled earlier for this moment come first.
                if later and later[0][0] <= self.now:
                    event = heapq.heappop(later)[2]
                elif soon:
                    event = soon.popleft()
                elif later[0][0] > until:
                    self.now = max(self.now, until)
                    return
                else:
                    when, _, event = heapq.heappop(later)
                    if event.call is not None:
                        self.now, self._at_once = when, 0
                call, process = event.call, event.process
                if call is None:
                    continue
                self._at_once += 1
                if self._at_once > _MAX_EVENTS_AT_ONCE:
                    raise Stuck(f"{process} runs without end at {self.now:.3f} s: {call!r}")
                if process is not None:
                    if not process.alive:
                        continue
                    if process.frozen:
                        process.backlog.append(event)
                        continue
                self.steps += 1
                self.current = process
                if event.loop is not running:
                    running = event.loop
                    asyncio._set_running_loop(running)
                if running is None:
                    call(*event.args)
                    continue
                try:
                    call(*event.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    running.call_exception_handler({"message": f"exception in {call!r}", "exception": error})
        finally:
            self.current = None
            asyncio._set_running_loop(None)

    # ---- code that blocks

    def park(self) -> Any:
        """Give the turn back to the scheduler until this greenlet is resumed; return the value of the resumption."""
        assert self.hub is not None
        return self.hub.switch()

    def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds of virtual time."""
        process, me = self.current, greenlet.getcurrent()
        if process is None or me is self.hub:
            raise RuntimeError("only code of a process can sleep")
        if not process.alive:
            raise Died
        self.after(seconds, me.switch, process)
        self.park()

    # ---- edges

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let our code run in this world inside the block."""
        World.active = self
        mine = threading.get_ident()
        real_monotonic, real_time, real_sleep, real_urandom = time.monotonic, time.time, time.sleep, os.urandom

        def monotonic() -> float:
            return self.now if threading.get_ident() == mine else real_monotonic()

        def wall() -> float:
            return BEGIN + self.now if threading.get_ident() == mine else real_time()

        def sleep(seconds: float) -> None:
            if threading.get_ident() == mine:
                self.sleep(seconds)
            else:
                real_sleep(seconds)

        def urandom(size: int) -> bytes:
            return self.random.randbytes(size) if threading.get_ident() == mine else real_urandom(size)

        def connect_first(host: str, port: int, _: float) -> Socket:
            assert self.current is not None
            return self.network.connect_blocking(self.current, host, port)

        with contextlib.ExitStack() as stack:
            for target, name, replacement in (
                (time, "monotonic", monotonic),
                (time, "time", wall),
                (time, "sleep", sleep),
                (os, "urandom", urandom),
                (random, "_urandom", urandom),
                (client_module, "EventLoop", _Loops(self)),
                (lookup, "EventLoop", _Loops(self)),
                (client_module, "_clients", _Cache(self, client_module._client)),
                (exactly_once, "_checks", _Cache(self, exactly_once._Check)),
                (model, "driver_pid", self._driver_pid),
                (batch, "driver_pid", self._driver_pid),
                # In this world, reads of one driver do not know each other.
                (batch, "exclusive", lambda _: contextlib.nullcontext()),
                (Siblings, "find", lambda *_: None),
                (keeper, "watch_process", self._watch_process),
                (logs, "set_up_logging", lambda *_: None),
                (spark_processes, "start_side_process", self._start_side_process),
                (spark_processes, "side_process_message", self._side_process_message),
                (blocking_connection, "connect_first", connect_first),
                (blocking_connection, "select", _Select(self)),
                (TaskContext, "get", lambda: None if self.current is None else self.current.task),
                (spark_processes, "prepare_worker", lambda *_: None),
                *_native_engine(self),
            ):
                stack.enter_context(mock.patch.object(target, name, replacement))
            try:
                yield
            finally:
                self._take_down()

    def _driver_pid(self) -> int:
        return 0 if self.current is None else self.current.driver.pid

    def _watch_process(self, pid: int) -> Callable[[], bool]:
        return lambda: self._processes[pid - 1].alive

    def _start_side_process(self, module: str, arguments: Sequence[str], message: object) -> None:
        assert self.current is not None
        name = f"{self.current.name}.{module.rpartition('.')[2]}"
        process = self.process(name, self.current.driver)
        process.message = pickle.dumps(message)
        self.side_processes.append(process)

        def run() -> None:
            try:
                importlib.import_module(module).main(*arguments)
            except Exception:
                self.tell(name, f"BROKE: {traceback.format_exc()}")
            except Died:
                return
            process.kill()

        process.start(run)

    def _side_process_message(self) -> object:
        assert self.current is not None
        return pickle.loads(self.current.message)

    def process(self, name: str, driver: Process | None = None) -> Process:
        """Start a process that belongs to this driver; None: the process is a driver, or belongs to no driver."""
        process = Process(self, name, len(self._processes) + 1, driver)
        self._processes.append(process)
        return process

    def _take_down(self) -> None:
        self._soon.clear()
        self._later.clear()
        for process in self._processes:
            process.take_down()


class Process:
    """A process of an operating system.

    Attributes:
        pid: Its id, different from that of every other process of the world.
        driver: The process of Spark's driver to which it belongs.
        message: The pickled arguments with which it was started.
        alive: Whether it has neither been killed nor ended.
        frozen: Whether it is suspended (SIGSTOP, or a long pause of its virtual machine).
        froze_at: The time at which it was last suspended.
        backlog: Its events that became due while it was suspended.
        calls: The calls that run in it for other processes.
        cached: The objects that it has cached, such as clients.
        task: The context of the task that runs in it; None: no task.
    """

    def __init__(self, world: World, name: str, pid: int, driver: Process | None = None) -> None:
        self.world, self.name, self.pid = world, name, pid
        self.driver = self if driver is None else driver
        self.message = b""
        self.alive, self.frozen, self.froze_at = True, False, math.inf
        self.backlog: list[Event] = []
        self.cached: dict[Hashable, Any] = {}
        self.task: Task | None = None
        # asyncio calls no other methods of a loop here.
        self.loop = ProcessLoop(world, self)  # type: ignore[abstract]
        self.links: list[Link] = []
        self.calls: list[Call[Any]] = []
        self._greenlets: list[greenlet.greenlet] = []
        self._before: tuple[int, int, Callable[[], object]] | None = None

    def __repr__(self) -> str:
        return self.name

    def start(self, work: Callable[[], object]) -> None:
        """Run code that blocks, as the main thread of the process; the process ends with this code."""
        # The code that starts a process may block too; the turn goes to the scheduler when this code ends.
        running = greenlet.greenlet(work, self.world.hub)
        self._greenlets.append(running)
        self.world.after(0, running.switch, self)

    def call(self, work: Callable[[], _T]) -> Call[_T]:
        """Run code that blocks in a thread of the process."""
        made = Call(self, work)
        self.calls.append(made)
        self.start(made.run)
        return made

    def kill(self) -> None:
        """End immediately, as after SIGKILL: no more bytes are sent, and the peers see the connections end."""
        if not self.alive:
            return
        self.alive = False
        for link in list(self.links):
            link.end()
        for call in self.calls:
            call.wake()

    def freeze(self, seconds: float | None) -> None:
        """Suspend the process for this number of seconds; None: suspend it until `thaw`."""
        self.frozen, self.froze_at = True, self.world.now
        if seconds is not None:
            self.world.after(seconds, self.thaw)

    def before(self, api_key: int, happens: Callable[[], object], *, skip: int = 0) -> None:
        """Call a function immediately before a request of this kind leaves the process; skip some requests first."""
        self._before = api_key, skip, happens

    def leaves(self, api_key: int) -> bool:
        """Return whether a request of this kind leaves the process now: it is alive and not suspended."""
        if self._before is not None and self._before[0] == api_key and not self.frozen:
            _, left, happens = self._before
            self._before = (api_key, left - 1, happens) if left else None
            if not left:
                happens()
        return self.alive and not self.frozen

    def thaw(self) -> None:
        """Continue after a suspension."""
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for event in backlog:
            self.world.add_now(event)

    def take_down(self) -> None:
        """End the remaining code of this process, without any effect."""
        self.alive = False
        for one in self._greenlets:
            if one and not one.dead:
                one.parent = greenlet.getcurrent()
                with contextlib.suppress(BaseException):
                    one.throw(Died)
        self._greenlets.clear()
        self.cached.clear()


class ProcessLoop(asyncio.AbstractEventLoop):
    """The asyncio loop of a process, on virtual time."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def time(self) -> float:
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # Our code uses no context variables, so callbacks run in any context.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Event:
        event = Event(callback, args, self._process, self)
        self._world.add_now(event)
        return event

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Event:
        event = Event(callback, args, self._process, self)
        self._world.add(delay, event)
        return event

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Event:
        return self.call_later(when - self._world.now, callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[_T]:
        return asyncio.Task(coro, loop=self, name=name)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        done = self.create_future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive:
            self._world.tell(str(self._process), f"UNHANDLED {context.get('message')}: {context.get('exception')!r}")

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self._world.network.connect(self._process, protocol_factory, host, port)


class _Loops:
    """The replacement of `EventLoop`: all loops of a process are one loop."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, name: str = "") -> SimulatedEventLoop:
        assert self._world.current is not None
        return SimulatedEventLoop(self._world, self._world.current)

    def shared(self) -> SimulatedEventLoop:
        return self()


class SimulatedEventLoop:
    """An `EventLoop` for a process of the world."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    @property
    def alive(self) -> bool:
        return self._process.alive

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        if not self._process.alive:
            work.close()
            raise Died
        future = self.spawn(work)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise TimeoutError(str(error)) from None

    def spawn(self, work: Coroutine[Any, Any, _T]) -> _Future[_T]:
        future: _Future[_T] = _Future(self._world)
        loop = self._process.loop
        loop.call_soon(lambda: asyncio.futures._chain_future(loop.create_task(work), future))  # type: ignore[attr-defined]
        return future

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._process.loop.call_soon(callback, *args)

    def close(self, last: Callable[[], object] | None = None) -> None:
        if last is not None:
            last()


class _Future(concurrent.futures.Future[_T]):
    """The future result of a coroutine, for code that blocks."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def result(self, timeout: float | None = None) -> _T:
        if not self.done():
            waiting = Waiting(self._world, timeout)
            self.add_done_callback(waiting.resume)
            waiting.wait()
        if not self.done():
            raise concurrent.futures.TimeoutError(f"not done within {timeout} s")
        return super().result()


class _Cache:
    """The replacement of a `ProcessCache`: a cache of each process."""

    def __init__(self, world: World, make: Callable[[Any], object]) -> None:
        self._world, self._make = world, make

    def of(self, key: Hashable) -> Any:
        assert self._world.current is not None
        found, own = self._world.current.cached, (self._make, key)
        if own not in found:
            found[own] = self._make(key)
        return found[own]


def _native_engine(world: World) -> list[tuple[object, str, object]]:
    """Return the replacements for the native engine, if it is installed; seeds with a sink need this engine."""
    try:
        from kafka_source.fetch import native_reader
        from kafka_source.produce import native
    except ImportError:
        return []
    return [
        (native, "_producers", _Cache(world, NativeProducer)),
        (native_reader, "_engines", _Cache(world, native_reader.NativeEngine)),
    ]


class Transport(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._link.client_writes(bytes(data))

    def abort(self) -> None:
        self._link.end()

    def close(self) -> None:
        self._link.end()

    def is_closing(self) -> bool:
        return self._link.closed

    def get_extra_info(self, name: str, default: socket.socket | None = None) -> Any:
        return default


class Waiting:
    """One wait of the current code that blocks: another event or the clock resumes it, whichever comes first."""

    def __init__(self, world: World, seconds: float | None) -> None:
        assert world.current is not None
        self._world, self._process, self._me = world, world.current, greenlet.getcurrent()
        self._waits = True
        self._timer = None if seconds is None else world.after(seconds, self.resume, self._process)

    def resume(self, *_: object) -> None:
        """End the wait; do nothing if it has ended."""
        if self._waits:
            self._waits = False
            self._world.after(0, self._me.switch, self._process)

    def wait(self) -> None:
        """Wait."""
        try:
            self._world.park()
        finally:
            self._waits = False
            if self._timer is not None:
                self._timer.cancel()


class Socket(asyncio.Protocol):
    """The client's end of a connection for code that blocks: what `BlockingConnection` needs of a socket.

    Attributes:
        link: The connection, which its network sets.
        waiting: The wait for bytes, or for the end of the connection.
    """

    link: Link

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 100 + len(world.sockets)
        world.sockets[self._number] = self
        self._received = bytearray()
        self._ended = False
        self._timeout: float | None = None
        self.waiting: Waiting | None = None

    # ---- what the connection calls

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._wake()

    def connection_lost(self, _: Exception | None) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self.waiting is not None:
            self.waiting.resume()

    # ---- what our code calls

    @property
    def readable(self) -> bool:
        return self._ended or bool(self._received)

    def fileno(self) -> int:
        return self._number

    def setsockopt(self, *_: int) -> None:
        pass

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def sendall(self, data: bytes) -> None:
        if self._ended:
            raise BrokenPipeError(32, "Broken pipe")
        self.link.client_writes(bytes(data))

    def recv_into(self, view: memoryview) -> int:
        if not self.readable:
            self.wait_all(self._world, [self], self._timeout)
        if not self.readable:
            raise TimeoutError("timed out")
        count = min(len(view), len(self._received))
        view[:count] = self._received[:count]
        del self._received[:count]
        return count

    def close(self) -> None:
        self.link.end()
        self._ended = True

    @staticmethod
    def wait_all(world: World, sockets: Iterable[Socket], seconds: float | None) -> None:
        """Wait until one of the sockets is readable, at most for this number of seconds."""
        waiting = Waiting(world, seconds)
        for one in sockets:
            one.waiting = waiting
        waiting.wait()


class _Select:
    """The replacement of the module `select`."""

    POLLIN = 1

    def __init__(self, world: World) -> None:
        self._world = world

    def poll(self) -> _Poll:
        return _Poll(self._world)


class _Poll:
    def __init__(self, world: World) -> None:
        self._world = world
        self._sockets: list[Socket] = []

    def register(self, connection: RequestConnection, _: int) -> None:
        self._sockets.append(self._world.sockets[connection.fileno()])

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        if milliseconds > 0 and not any(one.readable for one in self._sockets):
            Socket.wait_all(self._world, self._sockets, milliseconds / 1000)
        return [(one.fileno(), _Select.POLLIN) for one in self._sockets if one.readable]
