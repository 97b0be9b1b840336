"""`examine`: all checks of the doctor, in the order of their dependencies, each within a time limit."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_source.client_config import Settings
from kafka_source.commits.side_groups import FINISHED, HALT, IDLE, LEDGER, READ_BY, REJOINED
from kafka_source.errors import AuthenticationError, KafkaGroupError
from kafka_source.group.requests import describe_consumer_protocol
from kafka_source.kafka_client import Broker, Deadline, KafkaClient, parse_servers
from kafkagroup.doctor import rights
from kafkagroup.doctor.brokers import advertised_finding, broker_findings, clock_finding, newest_timestamp
from kafkagroup.doctor.java_and_spark import find_java_and_spark, java_and_spark_findings
from kafkagroup.doctor.probe import probe
from kafkagroup.doctor.versions import Finding, Installed, installed, version_findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEP_SECONDS = 10.0


def examine(
    settings: Mapping[str, str] | None = None,
    *,
    spark: SparkSession | None = None,
    topics: Collection[str] = (),
    output_topics: Collection[str] = (),
    group: str | None = None,
    transactional_id: str | None = None,
    seconds: float = _STEP_SECONDS,
) -> list[Finding]:
    """Check the installation. With `bootstrap.servers`, check the connection to the cluster and the user's rights too.

    Args:
        settings: Kafka client settings under their Java names, with `bootstrap.servers`; None: the installation only.
        spark: A session; the checks then run on its executors too.
        topics: Topics to read.
        output_topics: Topics to write.
        group: A group to join.
        transactional_id: The `transactional.id.prefix` of a sink.
        seconds: The time limit of each step of a connection.

    Returns:
        The findings, in the order of the checks.

    Raises:
        OptionError: A setting is missing, unknown or has an invalid value.
    """
    found = installed()
    findings = [*version_findings(found), *java_and_spark_findings(find_java_and_spark(found.spark))]
    client_settings = None if settings is None else Settings(settings)
    brokers: tuple[Broker, ...] = ()
    cluster_id: str | None = None
    if client_settings is not None:
        bootstrap, brokers, cluster_id = _brokers(client_settings, seconds)
        findings += bootstrap
        if brokers:
            is_classic = client_settings.get("group.protocol") != "consumer"
            wanted = _Wanted(topics, output_topics, group, transactional_id, is_classic=is_classic)
            findings += _in_cluster(client_settings, wanted)
    if spark is not None:
        findings += _executors(spark, found, client_settings, brokers, cluster_id, seconds)
    return findings


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The work that the user plans in the cluster; the fields are arguments of `examine`.

    `is_classic`: whether members of `group` have the classic protocol.
    """

    topics: Collection[str]
    output_topics: Collection[str]
    group: str | None
    transactional_id: str | None
    is_classic: bool


def _brokers(settings: Settings, seconds: float) -> tuple[list[Finding], tuple[Broker, ...], str | None]:
    """Connect to the bootstrap servers, and then to every broker that they name."""
    endpoints = parse_servers(settings.get("bootstrap.servers", ""))
    probes = {endpoint: probe(endpoint, settings, seconds) for endpoint in endpoints}
    findings = [
        finding
        for endpoint, seen in probes.items()
        for finding in broker_findings(seen, f"bootstrap server {endpoint}", now=time.time())
    ]
    answered = next((seen for seen in probes.values() if seen.failed is None), None)
    if answered is None:
        return findings, (), None
    # One bootstrap server that answers is enough for a client.
    findings = [replace(each, state="warn") if each.state == "fail" else each for each in findings]
    wrong = advertised_finding(endpoints, (broker.endpoint for broker in answered.brokers))
    findings += [] if wrong is None else [wrong]
    for broker in answered.brokers:
        seen = probe(broker.endpoint, settings, seconds)
        name = f"broker {broker.node_id} at {broker.endpoint}"
        findings += broker_findings(
            seen, name, now=time.time(), node=broker.node_id, cluster_id=answered.cluster_id
        )  # fmt: skip
    return findings, answered.brokers, answered.cluster_id


def _in_cluster(settings: Settings, wanted: _Wanted) -> list[Finding]:
    """Check the rights and the clocks."""
    with closing(KafkaClient(settings)) as client:
        try:
            return client.run(_rights_and_clocks(client, wanted))
        except KafkaGroupError as error:
            # The brokers answered the previous checks, and do not answer now.
            return [Finding("rights", "skipped", f"Unknown: {error}")]


async def _rights_and_clocks(client: KafkaClient, wanted: _Wanted) -> list[Finding]:
    newest = await newest_timestamp(client, Deadline(rights.QUESTION_SECONDS))
    findings = [clock_finding(newest, time.time())]
    for needed, topics, purpose in (
        ((rights.READ,), wanted.topics, "to read the topic"),
        ((rights.READ, rights.WRITE), wanted.output_topics, "to write the topic exactly once")
        if wanted.transactional_id is not None
        else ((rights.WRITE,), wanted.output_topics, "to write the topic"),
    ):
        allowed_topics = await rights.topic_rights(client, topics) if topics else []
        findings += [rights.right_finding(f"rights: {one.resource}", needed, one, purpose) for one in allowed_topics]
    both = (rights.WRITE, rights.DESCRIBE)
    if wanted.group is not None:
        allowed = await rights.group_rights(client, wanted.group)
        purpose = "to join the group and to commit offsets"
        findings.append(rights.right_finding(f"rights: {allowed.resource}", (rights.READ,), allowed, purpose))
        if wanted.is_classic and allowed.operations is not None:
            findings += await _protocol_finding(client, wanted.group)
        # A group's offsets are committed in transactions, whose transactional ids begin with the group's name.
        allowed = await rights.transactional_id_rights(client, f"{wanted.group}-doctor")
        finding = rights.right_finding(f"rights: {allowed.resource}", both, allowed, "to commit in transactions")
        if finding.state == "fail":
            way_out = "Offsets are then committed without a transaction, unless commit.transactional is true."
            finding = replace(finding, state="warn", advice=f"{finding.advice} {way_out}".strip())
        findings.append(finding)
        for side, of in (
            (READ_BY, "commit=sink only"),
            (REJOINED, "commit=task and commit=sink only"),
            (HALT, "`kafkagroup stop`, `pause` and `resume`: a query without this right is not halted"),
            (IDLE, "paused and stopped queries, to confirm the halt"),
        ):
            allowed = await rights.group_rights(client, side.of(wanted.group, "doctor"))
            finding = rights.right_finding(f"rights: {allowed.resource}", (rights.READ,), allowed, f"by {of}")
            findings.append(replace(finding, state="warn") if finding.state == "fail" else finding)
    if wanted.transactional_id is not None:
        prefix = wanted.transactional_id
        allowed = await rights.transactional_id_rights(client, f"{prefix}-driver")
        findings.append(rights.right_finding(f"rights: {allowed.resource}", both, allowed, "by an exactly-once sink"))
        for side in (LEDGER, FINISHED):
            allowed = await rights.group_rights(client, side.of(prefix))
            purpose = "by an exactly-once sink for its decisions"
            findings.append(rights.right_finding(f"rights: {allowed.resource}", (rights.READ,), allowed, purpose))
    return findings


async def _protocol_finding(client: KafkaClient, group: str) -> list[Finding]:
    """Return a warning for a classic member, if the brokers assign the group's partitions; else an empty list."""
    try:
        found = await describe_consumer_protocol(client, group, Deadline(rights.QUESTION_SECONDS))
    except AuthenticationError:
        # `rights` reports the missing right.
        return []
    if found is None or not found.members:
        return []
    happened = "The group has members of the consumer protocol (KIP-848), so the brokers assign its partitions."
    advice = "Set kafka.group.protocol=consumer: in such a group, a query with the classic protocol ends."
    return [Finding(f"group {group}", "warn", happened, advice)]


def _executors(
    spark: SparkSession,
    found: Installed,
    settings: Settings | None,
    brokers: tuple[Broker, ...],
    cluster_id: str | None,
    seconds: float,
) -> list[Finding]:
    # Imported here: only this check needs Spark.
    from kafkagroup.doctor.executors import executor_findings

    return executor_findings(
        spark, found, settings, brokers, cluster_id=cluster_id, seconds=seconds, now=time.time()
    )  # fmt: skip
