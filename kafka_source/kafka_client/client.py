"""The client of one cluster: choice of brokers, metadata, coordinators, connections."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kafka_source.client_config import Settings
from kafka_source.client_config.servers import Endpoint
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    BootstrapError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    error_for_code,
)
from kafka_source.kafka_client import advertised
from kafka_source.kafka_client.blocking_connection import BlockingConnection
from kafka_source.kafka_client.connection import Connection, ConnectionLost, HandshakeEnded, explain_failure
from kafka_source.kafka_client.handshake import Identity
from kafka_source.kafka_client.messages import Request
from kafka_source.kafka_client.messages.cluster import FindCoordinatorRequest, MetadataRequest
from kafka_source.kafka_client.metadata import Broker, Snapshot, read_snapshot
from kafka_source.kafka_client.rebootstrap import Recovery
from kafka_source.kafka_client.reconnects import Reconnects
from kafka_source.kafka_client.settings import ConnectionSettings
from kafka_source.model.identity import check_same_cluster
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.event_loop import EventLoop
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.runtime.retry import RANDOM, retry_async


class OutdatedBroker(ConnectionLost):
    """A broker's metadata are older than another broker's metadata."""


log = logging.getLogger(__name__)

_T = TypeVar("_T")

GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators, as key types of FindCoordinator."""

# From this version on FindCoordinator has a list of keys (KIP-699).
_MANY_KEYS_VERSION = 4
# Seconds without an answer after which the next endpoint is tried too.
_NEXT_BROKER_SECONDS = 0.5
# The time limit of the search for another coordinator; without a result the known coordinator's refusal counts.
_CONFIRM_SECONDS = 5.0
# Extra seconds of a wait for another caller's request, so that the request's own error comes first.
_SHARED_MARGIN = 0.5
# In a row of failures, a failure with one of these numbers is logged as a warning, and others are logged at DEBUG.
_WORTH_A_WARNING = (6, 20, 60, 180)


class KafkaClient:
    """Client of one cluster. Its coroutines run on its event loop; synchronous code calls them with `run`.

    Args:
        settings: Kafka client settings under their Java names.
        loop: An event loop to share. By default the client has an event loop of its own, which `close` stops.
        client_id: A client id that replaces the setting `client.id`.
    """

    def __init__(self, settings: Settings, loop: EventLoop | None = None, client_id: str | None = None) -> None:
        self.settings = ConnectionSettings.of(settings, client_id)
        self._own_loop = loop is None
        self.loop = loop or EventLoop(f"kafkagroup-{self.settings.client_id}")
        self._connections: dict[int, Connection] = {}
        self._opening: dict[int, asyncio.Task[Connection]] = {}
        # The broker to ask for metadata and coordinators, the time at which to ask another broker, and the brokers to
        # avoid because their metadata were outdated.
        self._any: Connection | None = None
        self._ask_another_at = 0.0
        self._left: Endpoint | None = None
        self._outdated: set[Endpoint] = set()
        # All open connections: shared, dedicated, and replaced connections that still have requests in flight.
        self._open: list[Connection] = []
        self._brokers: dict[int, Broker] = {}
        # The last address of `bootstrap.servers` that answered, and the search for a broker at its advertised address.
        self._entry: Endpoint | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._coordinators: dict[tuple[int, str], Broker] = {}
        self._finding: dict[tuple[int, str], asyncio.Task[Broker]] = {}
        # Coordinators that have refused a member or epoch since they last accepted a request; see `is_replaced`.
        self._refusing: dict[tuple[int, str], set[Endpoint]] = {}
        self._reconnects = Reconnects(self.settings.reconnect)
        self._recovery = Recovery(self.settings.rebootstrap_after)
        self.cluster_id: str | None = None
        # Whether the brokers check the identity that a client expects (KIP-1242), as the last connection showed.
        self._brokers_check_identity = False
        # The last metadata of each requested topic, which may be outdated.
        self.known = Snapshot(None, {})

    def __repr__(self) -> str:
        return f"KafkaClient({self.settings.bootstrap_names!r})"

    # ---- for synchronous code

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run one of this client's coroutines and return its result.

        Raises:
            ConnectionLost: The call took longer than `timeout` seconds, for example because a process was suspended.
        """
        try:
            return self.loop.run(work, timeout)
        except TimeoutError as error:
            raise ConnectionLost(f"The brokers have not answered in time: {error}.") from error

    def open_socket(
        self, endpoint: Endpoint, client_id: str | None = None, seconds: float = math.inf
    ) -> BlockingConnection:
        """Open a blocking, authenticated connection to a broker (`Broker.endpoint`).

        Args:
            endpoint: The broker's endpoint.
            client_id: The client id; by default the client's own.
            seconds: The time limit, if it is below `socket.connection.setup.timeout.ms`.
        """
        settings = replace(
            self.settings,
            client_id=client_id or self.settings.client_id,
            connect_timeout=min(self.settings.connect_timeout, max(0.1, seconds)),
        )
        reached = self._is_reached
        if not reached:
            settings = replace(settings, connect_timeout=min(settings.connect_timeout, advertised.FIRST_SECONDS))
        time.sleep(self._reconnects.pause(endpoint, time.monotonic()))
        try:
            with self._counted(endpoint):
                return BlockingConnection.open(endpoint, settings, self._expected(endpoint))
        except ConnectionLost:
            if not reached:
                self.run(self.reach_broker(Deadline(max(0.1, seconds))))
            raise

    def close(self, *beside: "KafkaClient") -> None:
        """Close all connections, and stop the loop if it is the client's own.

        Args:
            beside: Clients that share this client's own loop; they are closed too.
        """

        def close_every() -> None:
            for client in (self, *beside):
                client._close_every()

        if self.loop.alive:
            self.loop.run(_called(close_every))
            if self._own_loop:
                # Close again when the tasks have ended, because a task may have opened a connection.
                self.loop.close(last=close_every)

    # ---- metadata

    async def metadata(
        self,
        topics: Iterable[str] | None = (),
        deadline: Deadline | None = None,
        *,
        create: bool = False,
        another: bool = False,
    ) -> Snapshot:
        """Return the cluster's current metadata.

        Args:
            topics: Names of topics; None: all topics that this user may describe.
            deadline: The time limit for all attempts; by default `request.timeout.ms`.
            create: Whether the brokers may create missing topics (`auto.create.topics.enable`).
            another: Whether to ask another broker, because the last broker may be cut off.

        Raises:
            BootstrapError: No broker answers before the deadline.
            AuthenticationError: The brokers refuse the connection or its credentials.
        """
        deadline = deadline or Deadline(self.settings.request_timeout)
        names = None if topics is None else sorted(set(topics))
        if another:
            self._ask_another()
        return await self.retrying(lambda: self._ask_metadata(names, deadline, create=create), deadline)

    async def _ask_metadata(self, names: Sequence[str] | None, deadline: Deadline, *, create: bool) -> Snapshot:
        self._recovery = self._recovery.asked(time.monotonic())
        demanded = False
        try:
            connection = await self.any_connection(deadline)
            response = await connection.send(_metadata_request(names, create=create), self._patience(deadline))
            code = response.error_code
            demanded = code == ErrorCode.REBOOTSTRAP_REQUIRED
            if code:
                raise error_for_code(code, "Asking for metadata failed")
            snapshot = read_snapshot(response)
            if not snapshot.brokers:
                connection.close()
                raise ConnectionLost(f"The metadata of the broker {connection.endpoint} have no brokers.")
            if (older := self.known.newer_than(snapshot)) is not None:
                self._outdated.add(connection.endpoint)
                self._ask_another()
                raise OutdatedBroker(f"The broker {connection.endpoint} is behind its cluster: {older}.")
        except RetriableError:
            reason = self._recovery.reason(time.monotonic(), demanded=demanded)
            if reason is not None:
                await self._rebootstrap(reason)
            raise
        self._learn(snapshot)
        self.known = snapshot if names is None else self.known.renewed(snapshot, names)
        return snapshot

    def _learn(self, snapshot: Snapshot) -> None:
        check_same_cluster(
            self.cluster_id,
            snapshot.cluster_id,
            servers=self.settings.bootstrap_names,
            moved_from=self.settings.moved_from,
        )
        self.cluster_id = snapshot.cluster_id or self.cluster_id
        self._recovery = self._recovery.answered()
        for node_id, broker in snapshot.brokers.items():
            known = self._brokers.get(node_id)
            if known is not None and known.endpoint != broker.endpoint and node_id in self._connections:
                self._connections.pop(node_id).close()
        self._brokers = dict(snapshot.brokers)

    async def _rebootstrap(self, reason: str) -> None:
        log.warning("rebootstrap servers=%s reason=%r", self.settings.bootstrap_names, reason)
        self._close_shared()
        self._brokers.clear()
        # The next response may come from a restored cluster, whose leader epochs begin again.
        self._outdated.clear()
        self.known = Snapshot(None, {})
        self._recovery = self._recovery.answered()

    # ---- connections

    @property
    def connected(self) -> bool:
        """Whether a shared connection to a broker is open."""
        return any(connection.usable for connection in self._shared())

    async def any_connection(self, deadline: Deadline) -> Connection:
        """Return a shared connection to a broker for metadata and coordinators.

        The broker is random, and changes after `metadata.max.age.ms`, because a broker that is cut off from its
        controllers returns an old state. If the broker is busy, return the least busy connection.

        Raises:
            BootstrapError: No broker can be reached before the deadline.
            AuthenticationError: A broker refuses the connection or its credentials.
        """
        if self._any is not None and time.monotonic() >= self._ask_another_at:
            self._outdated.clear()
            self._ask_another()
        if self._any is not None and self._any.usable:
            trusted = (one for one in self._shared() if one.usable and one.endpoint not in self._outdated)
            return min(trusted, key=lambda one: one.in_flight, default=self._any)
        if self._brokers:
            endpoints = self._worth_asking()
            try:
                shared = next((one for one in self._shared() if one.usable and one.endpoint == endpoints[0]), None)
                return self._share(shared or await self._first_of(endpoints, deadline))
            except ConnectionLost:
                reason = self._recovery.reason(time.monotonic(), all_unreachable=True)
                if reason is None:
                    raise
                await self._rebootstrap(reason)
        return self._share(await self._bootstrap(deadline))

    def _worth_asking(self) -> list[Endpoint]:
        """Return the known brokers in random order, with the avoided brokers last."""
        known = _shuffled(broker.endpoint for broker in self._brokers.values())
        return sorted(known, key=lambda endpoint: (endpoint in self._outdated, endpoint == self._left))

    def _ask_another(self) -> None:
        """Avoid the current broker for metadata and coordinators; the next request goes to another broker."""
        left, self._any = self._any, None
        if left is None:
            return
        self._left = left.endpoint
        if left in self._connections.values():
            return
        node_id = next((node for node, broker in self._brokers.items() if broker.endpoint == left.endpoint), None)
        if node_id is None or node_id in self._connections or not left.usable:
            left.retire()
        else:
            # Keep the connection for requests to that broker, and for a later turn of the broker to send metadata.
            self._connections[node_id] = left

    def _share(self, opened: Connection) -> Connection:
        """Return the shared connection, which another caller may have opened at the same time."""
        if self._any is not None and self._any.usable:
            if opened not in self._shared():
                opened.close()
            return self._any
        if self._any is not None:
            self._any.retire()
        self._any = opened
        self._ask_another_at = time.monotonic() + self.settings.metadata_age
        return opened

    async def connection(self, broker: Broker, deadline: Deadline) -> Connection:
        """Return the shared connection to a broker; open it if necessary.

        Raises:
            ConnectionLost: The broker cannot be reached.
        """
        if self._any is not None and self._any.usable and self._any.endpoint == broker.endpoint:
            return self._any
        node_id = broker.node_id
        connection = self._connections.get(node_id)
        if connection is not None and connection.usable and connection.endpoint == broker.endpoint:
            return connection
        task = self._opening.get(node_id)
        if task is None:
            task = asyncio.ensure_future(self.dedicated(broker, deadline))
            self._opening[node_id] = task
            task.add_done_callback(lambda done: self._opened(node_id, done))
        # Several callers may wait for the same connection, so the attempt must not end if one caller is cancelled.
        return await asyncio.shield(task)

    def _opened(self, node_id: int, task: asyncio.Task[Connection]) -> None:
        # Closed here and not by the callers, which may all have been cancelled.
        is_wanted = self._opening.get(node_id) is task
        if is_wanted:
            del self._opening[node_id]
        if task.cancelled() or task.exception() is not None:
            return
        if not is_wanted:
            # All connections were closed while this connection opened.
            task.result().close()
            return
        if (replaced := self._connections.get(node_id)) is not None:
            replaced.retire()
        self._connections[node_id] = task.result()

    async def dedicated(self, broker: Broker, deadline: Deadline) -> Connection:
        """Open an unshared connection to a broker; the caller has to close it, and `close` closes it too."""
        if self._is_reached:
            return await self._connect(broker.endpoint, deadline)
        try:
            return await self._connect(broker.endpoint, Deadline(min(deadline.left, advertised.FIRST_SECONDS)))
        except ConnectionLost:
            await self.reach_broker(deadline)
            raise

    # ---- the addresses that brokers advertise

    @property
    def _is_reached(self) -> bool:
        """Whether this process has reached a broker at its advertised address, or knows no broker yet."""
        return not self._brokers or advertised.has_answered(broker.endpoint for broker in self._brokers.values())

    async def reach_broker(self, deadline: Deadline) -> None:
        """Wait until a broker has answered this process at its advertised address.

        Raises:
            InvalidConfigurationError: An address of `bootstrap.servers` has answered, but no advertised address has.
            ConnectionLost: No advertised address has answered before the deadline, which was too short to be sure.
        """
        if not self._brokers:
            await self.metadata((), deadline)
        if self._is_reached:
            return
        if self._reaching is None or self._reaching.done():
            self._reaching = asyncio.ensure_future(self._search_broker())
            self._reaching.add_done_callback(lambda task: task.cancelled() or task.exception())
        done, _ = await asyncio.wait((self._reaching,), timeout=deadline.left)
        if not done:
            raise ConnectionLost(self._describe_unreachable("The deadline of this request has passed."))
        self._reaching.result()

    async def _search_broker(self) -> None:
        within = Deadline(advertised.ERROR_SECONDS - advertised.FIRST_SECONDS)

        async def attempt() -> Connection:
            return await self._first_of(self._worth_asking(), within)

        warns = asyncio.get_running_loop().call_later(
            advertised.WARNING_SECONDS - advertised.FIRST_SECONDS,
            lambda: log.warning("%s", self._describe_unreachable("The client tries these addresses again.")),
        )
        try:
            opened = await retry_async(attempt, self.settings.retry, on=ConnectionLost, deadline=within)
        except ConnectionLost as problem:
            raise InvalidConfigurationError(self._describe_unreachable(str(problem))) from None
        finally:
            warns.cancel()
        node_id = next((node for node, broker in self._brokers.items() if broker.endpoint == opened.endpoint), None)
        if node_id is None or node_id in self._connections:
            opened.close()
        else:
            self._connections[node_id] = opened

    def _describe_unreachable(self, problem: str) -> str:
        endpoints = {node: broker.endpoint for node, broker in self._brokers.items()}
        return advertised.describe_unreachable(self._entry or self.settings.bootstrap[0], endpoints, problem)

    async def broker(self, node_id: int, deadline: Deadline) -> Broker:
        """Return a broker by its id; request metadata if the id is unknown.

        Raises:
            ConnectionLost: The broker is not in the metadata, so it is down.
        """
        if node_id not in self._brokers:
            await self.metadata((), deadline)
        try:
            return self._brokers[node_id]
        except KeyError:
            raise ConnectionLost(f"Broker {node_id} is not in the cluster's metadata: it is down.") from None

    async def send(self, node_id: int, request: Request[_T], deadline: Deadline, max_version: int | None = None) -> _T:
        """Send a request to a broker over the shared connection and return the response; no retries."""
        connection = await self.connection(await self.broker(node_id, deadline), deadline)
        return await connection.send(request, self._patience(deadline), max_version)

    async def _bootstrap(self, deadline: Deadline) -> Connection:
        within = Deadline(min(deadline.left, advertised.ERROR_SECONDS))
        problem: ConnectionLost | None = None

        async def attempt() -> Connection:
            nonlocal problem
            try:
                return await self._first_of(_shuffled(self.settings.bootstrap), within, verify=True)
            except ConnectionLost as error:
                # The error of an attempt that ends at the deadline only names the time limit.
                problem = error if problem is None or not within.over else problem
                raise

        try:
            return await retry_async(attempt, self.settings.retry, on=ConnectionLost, deadline=within)
        except ConnectionLost:
            advice = f" {problem.advice}" if isinstance(problem, HandshakeEnded) and not self._entry else ""
            raise BootstrapError(
                f"No broker of kafka.bootstrap.servers={self.settings.bootstrap_names} could be reached "
                f"within {within.seconds:.0f} s: {problem}{advice}"
            ) from None

    async def _connect(self, endpoint: Endpoint, deadline: Deadline) -> Connection:
        pause = self._reconnects.pause(endpoint, time.monotonic())
        if pause:
            await asyncio.sleep(min(pause, deadline.left))
        with self._counted(endpoint):
            seconds = max(0.001, deadline.left)
            connection = await Connection.open(endpoint, self.settings, seconds, self._expected(endpoint))
        self._brokers_check_identity = connection.checks_identity
        self._open = [*(one for one in self._open if not one.closed), connection]
        return connection

    def _expected(self, endpoint: Endpoint) -> Identity | None:
        """Return the node expected at an endpoint; None: no node or several nodes, or brokers check no identity."""
        nodes = [broker.node_id for broker in self._brokers.values() if broker.endpoint == endpoint]
        if not self._brokers_check_identity or self.cluster_id is None or len(nodes) != 1:
            return None
        return Identity(self.cluster_id, nodes[0])

    @contextlib.contextmanager
    def _counted(self, endpoint: Endpoint) -> Iterator[None]:
        """Count successes and failures of connections, for the pause before the next connection."""
        try:
            yield
        except KafkaGroupError:
            self._reconnects.failed(endpoint, time.monotonic())
            raise
        self._reconnects.connected(endpoint)
        advertised.note_answer(endpoint)

    async def _connect_and_verify(self, endpoint: Endpoint, deadline: Deadline) -> Connection:
        """Open a connection and send one request on it.

        A listener that requires SASL accepts a connection without a login, and closes it only at the first request.
        """
        connection = await self._connect(endpoint, deadline)
        try:
            try:
                answer = await connection.send(_metadata_request([]), self._patience(deadline))
            except ConnectionLost as problem:
                raise explain_failure(endpoint, problem, tls=self.settings.tls is not None) from None
            if not answer.brokers:
                raise ConnectionLost(f"The metadata of the broker {endpoint} have no brokers.")
            if not self._brokers:
                # A caller that only looks up coordinators has to know the cluster and its other brokers too.
                self._learn(read_snapshot(answer))
        except BaseException:
            connection.close()
            raise
        self._entry = endpoint
        return connection

    async def _first_of(self, endpoints: Sequence[Endpoint], deadline: Deadline, *, verify: bool = False) -> Connection:
        """Return the connection that opens first; try the next endpoint when an endpoint fails or is slow."""
        waiting = list(endpoints)
        started: list[asyncio.Task[Connection]] = []
        running: set[asyncio.Task[Connection]] = set()
        first: asyncio.Task[Connection] | None = None
        problem: Exception = ConnectionLost(f"No broker has answered within {deadline.seconds:.0f} s.")
        try:
            while (waiting or running) and not deadline.over:
                if waiting:
                    endpoint = waiting.pop(0)
                    connect = self._connect_and_verify if verify else self._connect
                    started.append(asyncio.ensure_future(connect(endpoint, deadline)))
                    running.add(started[-1])
                done, running = await asyncio.wait(
                    running,
                    timeout=_NEXT_BROKER_SECONDS if waiting else max(0.001, deadline.left),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    if task.exception() is None:
                        first = task
                        return task.result()
                    failure = task.exception()
                    if isinstance(failure, KafkaGroupError) and not isinstance(failure, ConnectionLost):
                        raise failure
                    problem = failure if isinstance(failure, Exception) else problem
            raise problem
        finally:
            # Also close connections that have just opened, because two may open in one pass of the event loop.
            for task in started:
                if task is not first:
                    task.cancel()
                    task.add_done_callback(_close_unwanted)

    def _shared(self) -> list[Connection]:
        return [*([] if self._any is None else [self._any]), *self._connections.values()]

    def _close_every(self) -> None:
        if self._reaching is not None:
            self._reaching.cancel()
        self._close_shared()
        for connection in self._open:
            connection.close()

    def _close_shared(self) -> None:
        for connection in self._shared():
            connection.close()
        self._any = None
        self._opening.clear()
        self._connections.clear()
        self._coordinators.clear()

    # ---- coordinators

    async def coordinator(self, key: str, deadline: Deadline, kind: int = GROUP) -> Broker:
        """Return the coordinator of a group or a transactional id; cache it until `forget_coordinator`.

        Raises:
            AuthenticationError: This user is not authorized for the group or transactional id.
            KafkaGroupError: No coordinator is found before the deadline.
        """
        found = self._coordinators.get((kind, key))
        if found is not None:
            return found

        async def ask() -> Broker:
            try:
                # All callers wait for one request, which must not end if a caller is cancelled or its time is over.
                found = asyncio.shield(self._being_found(kind, key, deadline))
                return await asyncio.wait_for(found, self._patience(deadline) + _SHARED_MARGIN)
            except asyncio.TimeoutError:
                raise ConnectionLost(f"{_finding(kind, key)}: no broker has answered in time.") from None

        return await self.retrying(ask, deadline)

    async def find_coordinators(self, keys: Iterable[str], deadline: Deadline, kind: int = GROUP) -> None:
        """Look up the coordinators of many keys with one request, if the broker supports it (KIP-699, Kafka 3.0).

        After this, call `coordinator` for each key; that call raises the error of a key.
        """
        wanted = [key for key in keys if (kind, key) not in self._coordinators]
        if not wanted:
            return

        async def ask() -> None:
            connection = await self.any_connection(deadline)
            if connection.versions.version_for(FindCoordinatorRequest) < _MANY_KEYS_VERSION:
                return
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=wanted)
            answer = await connection.send(request, self._patience(deadline))
            for found in answer.coordinators:
                if not found.error_code:
                    self._coordinators[kind, found.key] = Broker(found.node_id, Endpoint(found.host, found.port))

        await self.retrying(ask, deadline)

    def _being_found(self, kind: int, key: str, deadline: Deadline) -> asyncio.Task[Broker]:
        task = self._finding.get((kind, key))
        if task is None:
            task = asyncio.ensure_future(self._find_coordinator(kind, key, deadline))
            self._finding[kind, key] = task
            task.add_done_callback(lambda done: self._found(kind, key, done))
        return task

    def _found(self, kind: int, key: str, task: asyncio.Task[Broker]) -> None:
        # Deleted here and not by the callers, which may all have stopped waiting.
        del self._finding[kind, key]
        if not task.cancelled() and task.exception() is None:
            self._coordinators[kind, key] = task.result()

    async def _find_coordinator(self, kind: int, key: str, deadline: Deadline) -> Broker:
        connection = await self.any_connection(deadline)
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await connection.send(request, self._patience(deadline), max_version=_MANY_KEYS_VERSION - 1)
        if answer.error_code:
            raise error_for_code(answer.error_code, _finding(kind, key), reason=answer.error_message or "")
        return Broker(answer.node_id, Endpoint(answer.host, answer.port))

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Drop the cached coordinator, which has moved, so that the next request looks up the new one.

        The lookup goes to another broker, because the broker that named this coordinator may be outdated.
        """
        if self._coordinators.pop((kind, key), None) is not None:
            self._ask_another()

    def forget_lost_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Drop the cached coordinator, whose connection is lost, for all keys that it coordinates."""
        lost = self._coordinators.get((kind, key))
        self.forget_coordinator(key, kind)
        self._coordinators = {one: broker for one, broker in self._coordinators.items() if broker != lost}

    async def is_replaced(self, key: str, kind: int, coordinator: Endpoint, deadline: Deadline) -> bool:
        """Return whether another broker names a new coordinator, after this one has refused a member or epoch.

        A coordinator that is cut off from its cluster may refuse because its state is old. If the coordinator that
        another broker names has refused too, the refusal is final.
        """
        refusing = self._refusing.setdefault((kind, key), set())
        refusing.add(coordinator)
        named = self._coordinators.get((kind, key))
        if named is None or named.endpoint == coordinator:
            self.forget_coordinator(key, kind)
            with contextlib.suppress(KafkaGroupError):
                named = await self.coordinator(key, Deadline(min(_CONFIRM_SECONDS, deadline.left)), kind)
        if named is not None and named.endpoint not in refusing:
            return True
        self.forget_refusals(key, kind)
        return False

    def forget_refusals(self, key: str, kind: int) -> None:
        """Drop the refusals, because a refusal was final or the coordinator has accepted a request."""
        self._refusing.pop((kind, key), None)

    # ---- retries

    async def retrying(self, work: Callable[[], Awaitable[_T]], deadline: Deadline) -> _T:
        """Return the result of `work`; retry it with a back-off after retriable errors.

        Raises:
            RetriableError: The deadline has expired. The error is that of the last attempt. If that attempt got no
                answer, the error also has the text and code of the last answer.
        """
        answered: RetriableError | None = None

        async def attempt() -> _T:
            nonlocal answered
            try:
                return await work()
            except ConnectionLost as lost:
                if answered is not None:
                    lost.args = (f"{lost} The last answer was: {answered}",)
                    lost.code, lost.code_name = answered.code, answered.code_name
                raise
            except RetriableError as error:
                answered = error
                raise

        return await retry_async(
            attempt, self.settings.retry, on=RetriableError, deadline=deadline, again=self._may_pass
        )

    def _may_pass(self, error: Exception, failures: int, pause: float) -> bool:
        if isinstance(error, BootstrapError) and self.cluster_id is None:
            # `_bootstrap` has retried for its whole time limit, and this client has never reached the cluster.
            return False
        level = logging.WARNING if failures in _WORTH_A_WARNING else logging.DEBUG
        log.log(level, "retry pause_s=%.2f: %s", pause, error)
        return True

    def _patience(self, deadline: Deadline) -> float:
        return max(0.001, min(self.settings.request_timeout, deadline.left))


def _metadata_request(names: Sequence[str] | None, *, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _shuffled(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    shuffled = list(endpoints)
    RANDOM.shuffle(shuffled)
    return shuffled


def _finding(kind: int, key: str) -> str:
    return f"Finding the coordinator of {'group' if kind == GROUP else 'transactional id'} {key} failed"


async def _called(work: Callable[[], object]) -> None:
    work()


def _close_unwanted(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def cached_client(settings: Settings, purpose: str = "control") -> KafkaClient:
    """Return the client of this process for these settings; do not close it.

    Args:
        settings: Kafka client settings.
        purpose: A suffix of the client id, so that a quota on the fetchers' `client.id` does not throttle this client.
    """
    return _clients.of((settings, purpose))


def _client(key: tuple[Settings, str]) -> KafkaClient:
    settings, purpose = key
    return KafkaClient(settings, EventLoop.shared(), settings.client_id(purpose))


# A client that the cache has closed can still be used, and connects again when necessary.
_clients = ProcessCache(_client, close=KafkaClient.close, usable=lambda client: client.loop.alive)
