"""Findings about brokers: advice by the step that failed, certificates that expire soon, clocks that differ."""

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address

from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, Endpoint, KafkaClient
from kafka_source.kafka_client.messages.cluster import ListOffsetsRequest
from kafkagroup.doctor.probe import Probe, Step
from kafkagroup.doctor.versions import Finding

_DAY = 86_400.0
_SOON_DAYS = 30

_NAMES: dict[Step, str] = {
    "settings": "the client settings",
    "resolve": "the host's name",
    "connect": "TCP",
    "tls": "the TLS handshake",
    "kafka": "the first request (ApiVersions)",
    "login": "the SASL login",
    "metadata": "the request for the cluster's metadata",
}


def broker_findings(
    probe: Probe, name: str, *, now: float, node: int | None = None, cluster_id: str | None = None
) -> list[Finding]:
    """Return the findings of one broker: whether it can be reached, and whether its certificate expires soon.

    Args:
        probe: The result of the probe.
        name: The finding's name.
        now: The time in seconds since 1970.
        node: The broker's id if the cluster advertises this endpoint; None for an endpoint of bootstrap.servers.
        cluster_id: The id of the cluster that the bootstrap servers belong to; None: unknown.
    """
    if probe.failed is not None:
        return [Finding(name, "fail", f"{_NAMES[probe.failed]} failed: {probe.problem}", _advice(probe, node))]
    if cluster_id is not None and probe.cluster_id not in (None, cluster_id):
        return [
            Finding(
                name,
                "fail",
                f"The broker at {probe.endpoint} belongs to cluster {probe.cluster_id}, and bootstrap.servers lead to "
                f"cluster {cluster_id}.",
                "Check advertised.listeners of the brokers, port forwardings and DNS.",
            )
        ]
    steps = {"connect": "TCP", "tls": "TLS", "kafka": "ApiVersions", "login": "login", "metadata": "metadata"}
    done = ", ".join(steps[step] for step in probe.passed if step in steps)
    reached = Finding(name, "ok", f"{done}: all answered within {probe.seconds * 1000:.0f} ms ({probe.protocol}).")
    return [reached, *_certificate_finding(probe, name, now)]


def advertised_finding(bootstrap: Iterable[Endpoint], advertised: Iterable[Endpoint]) -> Finding | None:
    """Return a failure if brokers advertise this machine itself, and bootstrap.servers are on another machine."""
    local = sorted(str(endpoint) for endpoint in advertised if _is_loopback(endpoint.host))
    if not local or any(_is_loopback(endpoint.host) for endpoint in bootstrap):
        return None
    return Finding(
        "advertised listeners",
        "fail",
        f"The brokers advertise {', '.join(local)}, which every client takes for its own machine.",
        "Set advertised.listeners of the brokers to host names that clients can resolve.",
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _certificate_finding(probe: Probe, name: str, now: float) -> list[Finding]:
    certificate = probe.certificate
    if certificate is None:
        return []
    days = (certificate.expires - now) / _DAY
    happened = f"Valid for {', '.join(certificate.names) or 'no name'}; expires in {days:.0f} days."
    if days >= _SOON_DAYS:
        return [Finding(f"{name}: certificate", "ok", happened)]
    return [Finding(f"{name}: certificate", "warn", happened, "Renew the broker's certificate.")]


def _advice(probe: Probe, node: int | None) -> str:
    """Return advice about the step that failed."""
    step, listener = probe.failed, probe.listener
    if listener == "http":
        return "An HTTP server answers at this port: correct the host and the port."
    if listener == "plaintext" and step == "tls":
        protocols = "SASL_PLAINTEXT or PLAINTEXT" if probe.protocol == "SASL_SSL" else "PLAINTEXT or SASL_PLAINTEXT"
        return (
            f"The listener speaks Kafka without TLS: set kafka.security.protocol to {protocols}, or use another port."
        )
    if listener == "tls" and not probe.protocol.endswith("SSL"):
        protocols = "SASL_SSL" if probe.protocol == "SASL_PLAINTEXT" else "SSL or SASL_SSL"
        return f"The listener uses TLS: set kafka.security.protocol to {protocols}, or use another port."
    if step in ("resolve", "connect"):
        return _advice_for_address(probe, node)
    if step == "tls":
        return _advice_for_tls(probe)
    if step == "login":
        return "Check kafka.security.protocol, kafka.sasl.mechanism and the user's credentials."
    if step == "metadata" and not probe.protocol.startswith("SASL"):
        with_login = "SASL_SSL" if probe.protocol == "SSL" else "SASL_PLAINTEXT"
        return f"The listener probably requires a login: set kafka.security.protocol to {with_login}."
    if step == "settings":
        return "Correct the setting. Files that the setting names must exist on the machine that connects."
    return "Check that the port belongs to a Kafka broker, and read the broker's log."


def _advice_for_address(probe: Probe, node: int | None) -> str:
    what = "resolve its host name" if probe.failed == "resolve" else "reach its host and port"
    if node is None:
        return f"This machine cannot {what}. Check bootstrap.servers, DNS, the firewall, and whether the broker runs."
    return (
        f"Broker {node} tells its clients to use this address, and this machine cannot {what}. Set "
        "advertised.listeners of the broker to an address that clients reach; otherwise check DNS and firewall."
    )


def _advice_for_tls(probe: Probe) -> str:
    if probe.certificate is not None:
        names = ", ".join(probe.certificate.names) or "no name"
        return (
            f"The certificate is trusted, and valid for {names}. Use one of these names in bootstrap.servers and "
            "advertised.listeners, or renew the certificate."
        )
    return (
        "Check that kafka.ssl.truststore.location holds the authority that signed the broker's certificate, and that "
        "the certificate has not expired. If the broker asks for a client certificate, check kafka.ssl.keystore.*."
    )


_NAME = "clocks"
_TOPIC = "__consumer_offsets"
_MAX_TIMESTAMP = -3
_FIRST_VERSION, _VERSION = 7, 7
_TOLERANCE_SECONDS = 5.0
_RECENT_SECONDS = 60.0


def clock_finding(newest_ms: int | None, now: float) -> Finding:
    """Compare the brokers' clocks with this machine's.

    Args:
        newest_ms: The newest timestamp that a broker has written, in ms since 1970; None: unknown.
        now: This machine's time in seconds since 1970.
    """
    if newest_ms is None or newest_ms <= 0:
        return Finding(_NAME, "skipped", "Unknown: no broker shows its time to this user.")
    ahead = newest_ms / 1000 - now
    if ahead > _TOLERANCE_SECONDS:
        return Finding(
            _NAME,
            "warn",
            f"A broker's clock is at least {ahead:.0f} s ahead of this machine's.",
            "Synchronise the clocks (NTP): starting timestamps, token lifetimes and certificates depend on them.",
        )
    if -ahead > _RECENT_SECONDS:
        return Finding(_NAME, "skipped", f"Unknown: no group has written an offset for {-ahead:.0f} s.")
    return Finding(
        _NAME,
        "ok",
        f"The brokers' clocks are not ahead of this machine's, and at most {max(0.0, -ahead):.0f} s behind.",
    )


async def newest_timestamp(client: KafkaClient, deadline: Deadline) -> int | None:
    """Return the newest timestamp in `__consumer_offsets` in ms since 1970; None if no broker shows it."""
    try:
        snapshot = await client.metadata({_TOPIC}, deadline)
        topic = snapshot.topics.get(_TOPIC)
        by_leader: dict[int, list[int]] = {}
        for number, partition in ({} if topic is None else topic.partitions).items():
            by_leader.setdefault(partition.leader, []).append(number)
        asked = (_newest_on_leader(client, node, numbers, deadline) for node, numbers in by_leader.items() if node >= 0)
        return max([0, *await asyncio.gather(*asked)]) or None
    except KafkaGroupError:
        return None


async def _newest_on_leader(client: KafkaClient, node: int, numbers: list[int], deadline: Deadline) -> int:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partitions = [
        topic_type.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=_MAX_TIMESTAMP)
        for number in numbers
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic_type(name=_TOPIC, partitions=partitions)]
    )
    connection = await client.connection(await client.broker(node, deadline), deadline)
    if connection.versions.version_for(request, _VERSION) < _FIRST_VERSION:
        return 0
    answer = await connection.send(request, max(0.001, deadline.left), _VERSION)
    return max((p.timestamp for topic in answer.topics for p in topic.partitions if p.error_code == 0), default=0)
