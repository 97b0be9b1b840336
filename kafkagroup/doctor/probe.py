"""Connect to one broker step by step; name the step that failed, and the kind of server at the broker's port.

The steps are those of the connector's connections: resolve the host's name, connect by TCP, TLS, ApiVersions, login by
SASL, Metadata. If a step fails, a second probe finds the kind of server at this port.
"""

import socket
import ssl
import struct
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import security_protocol
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Broker, ConnectionSettings, Endpoint, decode_response, encode_request
from kafka_source.kafka_client.addresses import connect_first
from kafka_source.kafka_client.connection import explain_failure
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES, FrameError, read_frame
from kafka_source.kafka_client.handshake import Call, Session, advance, handshake
from kafka_source.kafka_client.messages import Request
from kafka_source.kafka_client.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataResponse
from kafka_source.kafka_client.metadata import read_snapshot

Step = Literal["settings", "resolve", "connect", "tls", "kafka", "login", "metadata"]
"""The steps of a probe. `kafka` is the first request, ApiVersions, which a listener answers even before a login."""

Listener = Literal["plaintext", "tls", "http", ""]
"""The server that answers at a port: Kafka without TLS, any server with TLS, an HTTP server; empty: unknown."""

_CLIENT = "kafkagroup-doctor"
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
_R = TypeVar("_R")
_MAX_GUESS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """A broker's TLS certificate: the names it is valid for, and its end in seconds since 1970."""

    names: tuple[str, ...]
    expires: float


@dataclass(frozen=True, slots=True)
class Probe:
    """The connection to one broker, up to the step that failed; without secrets.

    Attributes:
        endpoint: host:port.
        protocol: `security.protocol`.
        passed: The steps that succeeded, in order.
        failed: The step that failed; None if all succeeded.
        problem: The reason of the failure, as a sentence.
        listener: After a failure, the kind of server at the endpoint.
        certificate: The broker's certificate; None without TLS, or if it was not verified.
        cluster_id: The cluster's id.
        brokers: The brokers of the cluster, as this broker advertises them.
        seconds: The duration of all steps.
    """

    endpoint: str
    protocol: str
    passed: tuple[Step, ...]
    failed: Step | None = None
    problem: str = ""
    listener: Listener = ""
    certificate: Certificate | None = None
    cluster_id: str | None = None
    brokers: tuple[Broker, ...] = ()
    seconds: float = 0.0


@dataclass(slots=True)
class _Trace:
    """The steps so far."""

    step: Step = "settings"
    passed: list[Step] = field(default_factory=list)

    def enter(self, step: Step) -> None:
        if step != self.step:
            self.passed.append(self.step)
            self.step = step


def probe(endpoint: Endpoint, settings: Settings, seconds: float) -> Probe:
    """Connect to a broker, log in, ask for the cluster's metadata, and close the connection.

    Args:
        endpoint: The broker's host:port.
        settings: The Kafka client settings, as for a query.
        seconds: The time limit of each step.
    """
    began = time.monotonic()
    trace = _Trace()
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    certificate: Certificate | None = None
    try:
        protocol = security_protocol(settings)
        connection = ConnectionSettings.of(settings)
        with ExitStack() as opened:
            trace.enter("resolve")
            socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            trace.enter("connect")
            sock = opened.enter_context(closing(connect_first(endpoint.host, endpoint.port, seconds)))
            if connection.tls is not None:
                trace.enter("tls")
                secured = connection.tls.wrap_socket(sock, server_hostname=endpoint.host)
                sock = opened.enter_context(closing(secured))
                certificate = _certificate(secured)
            session = _shake_hands(sock, endpoint, connection, trace, seconds)
            trace.enter("metadata")
            snapshot = read_snapshot(_metadata(sock, session, seconds))
    except (OSError, ValueError, KafkaGroupError) as problem:
        # ValueError: the host's name cannot be encoded, or the response is malformed.
        tls = protocol.endswith("SSL")
        if isinstance(problem, ssl.SSLCertVerificationError):
            certificate = _unmatched_certificate(endpoint, settings, seconds)
        shown = problem if isinstance(problem, KafkaGroupError) else explain_failure(endpoint, problem, tls=tls)
        return Probe(
            str(endpoint),
            protocol,
            # The first step, the check of the settings, is no step of a connection.
            tuple(trace.passed[1:]),
            trace.step,
            str(shown),
            listener_at(endpoint, seconds) if trace.step in ("tls", "kafka", "login", "metadata") else "",
            certificate,
            seconds=time.monotonic() - began,
        )
    return Probe(
        str(endpoint),
        protocol,
        (*trace.passed[1:], trace.step),
        certificate=certificate,
        cluster_id=snapshot.cluster_id,
        brokers=tuple(snapshot.brokers[node] for node in sorted(snapshot.brokers)),
        seconds=time.monotonic() - began,
    )


def listener_at(endpoint: Endpoint, seconds: float) -> Listener:
    """Return the kind of server at an endpoint, without a login."""
    within = min(seconds, _MAX_GUESS_SECONDS)
    hello = encode_request(ApiVersionsRequest(), 1, _CLIENT, 0)
    head = _first_bytes(endpoint, hello, within)
    if head[:2] in _TLS_RECORDS or (not head and _speaks_tls(endpoint, within)):
        return "tls"
    if head == b"HTTP":
        return "http"
    if len(head) == 4 and 0 < struct.unpack(">i", head)[0] <= HANDSHAKE_BYTES:
        return "plaintext"
    # An HTTP server may wait for the end of a line. A broker closes the connection, because the "request" is too long.
    return "http" if _first_bytes(endpoint, b"GET / HTTP/1.0\r\n\r\n", within) == b"HTTP" else ""


def _first_bytes(endpoint: Endpoint, data: bytes, seconds: float) -> bytes:
    head = b""
    try:
        with connect_first(endpoint.host, endpoint.port, seconds) as sock:
            sock.sendall(data)
            while len(head) < 4 and (piece := sock.recv(4 - len(head))):
                head += piece
    except OSError:
        pass
    return head


def _speaks_tls(endpoint: Endpoint, seconds: float) -> bool:
    # This connection only shows whether the server speaks TLS; nothing is sent over it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with connect_first(endpoint.host, endpoint.port, seconds) as sock:
            with context.wrap_socket(sock, server_hostname=endpoint.host):
                return True
    except ssl.SSLError as problem:
        # An alert is an answer in TLS, for example because the server wants a client certificate.
        return "ALERT" in (problem.reason or "")
    except OSError:
        return False


def _unmatched_certificate(endpoint: Endpoint, settings: Settings, seconds: float) -> Certificate | None:
    """Return a certificate that is trusted but not valid for the host's name; None: not trusted."""
    context = ssl_context(replace(tls_of(settings), check_hostname=False))
    try:
        with connect_first(endpoint.host, endpoint.port, seconds) as sock:
            with context.wrap_socket(sock, server_hostname=endpoint.host) as secured:
                return _certificate(secured)
    except OSError:
        return None


def _certificate(sock: ssl.SSLSocket) -> Certificate | None:
    found = sock.getpeercert()
    if not found:
        # Python parses only certificates that it verifies.
        return None
    names = found.get("subjectAltName", ())
    assert isinstance(names, tuple)
    return Certificate(tuple(str(name) for _, name in names), float(ssl.cert_time_to_seconds(str(found["notAfter"]))))


def _shake_hands(
    sock: socket.socket, endpoint: Endpoint, connection: ConnectionSettings, trace: _Trace, seconds: float
) -> Session:
    talk = handshake(endpoint, connection.sasl)
    step: Call | Session = next(talk)
    while isinstance(step, Call):
        trace.enter("kafka" if isinstance(step.request, ApiVersionsRequest) else "login")
        step = advance(talk, _exchange(sock, step.request, step.version, seconds))
    return step


def _metadata(sock: socket.socket, session: Session, seconds: float) -> MetadataResponse:
    request = MetadataRequest(
        topics=[],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return _exchange(sock, request, session.versions.version_for(request), seconds)


def _exchange(sock: socket.socket, request: Request[_R], version: int, seconds: float) -> _R:
    sock.settimeout(seconds)
    sock.sendall(encode_request(request, 1, _CLIENT, version))
    frame = read_frame(sock, HANDSHAKE_BYTES, until=time.monotonic() + seconds)
    try:
        return decode_response(request, version, 1, frame)
    except ValueError as problem:
        raise FrameError(f"it sent a malformed answer to {request.name}: {problem}") from None
