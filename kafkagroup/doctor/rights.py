"""The rights (ACLs) that readers, group members and transactional sinks need, checked without changing anything.

Brokers list the operations that a user may do on topics and groups (KIP-430). No request lists the operations on
transactional ids, so two requests test the rights: DescribeTransactions needs DESCRIBE, and EndTxn needs WRITE. EndTxn
changes nothing: its producer id is unused, and the broker refuses the id after it has checked the right.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import KafkaGroupError, code_name, error_for_code
from kafka_source.kafka_client import (
    GROUP,
    TRANSACTION,
    Deadline,
    KafkaClient,
    check_coordinator,
    coordinator_call,
    to_coordinator,
)
from kafka_source.kafka_client.messages.cluster import MetadataRequest
from kafka_source.kafka_client.messages.group import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_source.kafka_client.messages.transaction import DescribeTransactionsRequest, EndTxnRequest
from kafkagroup.doctor.versions import Finding

READ, WRITE, DESCRIBE = "READ", "WRITE", "DESCRIBE"

# Kafka's codes of `AclOperation`.
_CODES = {READ: 3, WRITE: 4, DESCRIBE: 8}
# The value in a response if operations were not requested.
_UNTOLD = -(2**31)
_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# The last version of DescribeGroups that describes an unknown group as Dead and returns no error.
_DESCRIBE_GROUPS_VERSION = 5
_END_VERSION = 3
_NO_PRODUCER_ID = 2**63 - 1
QUESTION_SECONDS = 10.0
"""The time limit of each request. Brokers of a new cluster create a topic at the first request for a coordinator."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A user's rights to one resource, according to a broker.

    Attributes:
        resource: The resource, for example `topic orders`.
        operations: Those requested operations that are allowed; None: the broker returns no operations.
        problem: The reason why the operations are unknown, or another fault of the resource; empty: no fault.
    """

    resource: str
    operations: frozenset[str] | None
    problem: str = ""


def right_finding(name: str, needed: Collection[str], allowed: Allowed, purpose: str) -> Finding:
    """Return whether a user has the rights for a purpose.

    Args:
        name: The finding's name.
        needed: The operations that the purpose needs.
        allowed: The broker's answer.
        purpose: The purpose, for example "to read".
    """
    listed = " and ".join(needed)
    if allowed.operations is None:
        return Finding(name, "skipped", f"Unknown: {allowed.problem or 'the broker does not return them'}.", "")
    missing = [operation for operation in needed if operation not in allowed.operations]
    if missing:
        return Finding(
            name,
            "fail",
            f"This user has no {' and no '.join(missing)} on {allowed.resource}, which is needed {purpose}.",
            f"Add an ACL that allows {' and '.join(missing)} on {allowed.resource}.",
        )
    if allowed.problem:
        return Finding(name, "fail", f"{allowed.problem}.")
    return Finding(name, "ok", f"This user has {listed} on {allowed.resource}, which is needed {purpose}.")


def named(bits: int) -> frozenset[str] | None:
    """Return the names of the operations in a response; None if the broker returns no operations.

    Args:
        bits: A bit for each code of `AclOperation`.
    """
    return None if bits == _UNTOLD else frozenset(name for name, code in _CODES.items() if bits >> code & 1)


async def topic_rights(client: KafkaClient, topics: Iterable[str]) -> list[Allowed]:
    """Return the rights to topics (Metadata with authorized operations, Kafka 2.3)."""
    names = sorted(set(topics))
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    deadline = Deadline(QUESTION_SECONDS)
    connection = await client.any_connection(deadline)
    answer = await connection.send(request, max(0.001, deadline.left))
    found = {}
    for topic in answer.topics:
        resource = f"topic {topic.name}"
        if topic.error_code in _DENIED:
            found[topic.name] = Allowed(resource, frozenset())
        elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found[topic.name] = Allowed(
                resource, frozenset(_CODES), f"The {resource} does not exist: correct the name, or create it"
            )
        elif topic.error_code:
            found[topic.name] = Allowed(resource, None, code_name(topic.error_code))
        else:
            found[topic.name] = Allowed(resource, named(topic.topic_authorized_operations))
    return [found[name] for name in names if name in found]


async def group_rights(client: KafkaClient, group: str) -> Allowed:
    """Return the rights to a group, which need not exist (DescribeGroups with authorized operations, Kafka 2.3)."""
    resource = f"group {group}"
    deadline = Deadline(QUESTION_SECONDS)
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)

    def read(answer: DescribeGroupsResponse) -> Allowed:
        (found,) = answer.groups
        check_coordinator(client, GROUP, group, found.error_code, f"Describing {resource} failed")
        return Allowed(resource, named(found.authorized_operations))

    try:
        return await coordinator_call(
            client, GROUP, group, request, deadline, read, max_version=_DESCRIBE_GROUPS_VERSION
        )
    except KafkaGroupError as error:
        return _refused(resource, error)


async def transactional_id_rights(client: KafkaClient, name: str) -> Allowed:
    """Return the rights to a transactional id, which need not exist (Kafka 3.0)."""
    resource = f"transactional id {name}"
    deadline = Deadline(QUESTION_SECONDS)
    writes: bool | None = None
    try:
        writes = await client.retrying(lambda: _may_write(client, name, deadline), deadline)
        describes = await client.retrying(lambda: _may_describe(client, name, deadline), deadline)
    except KafkaGroupError as error:
        if writes is None and error.code == ErrorCode.UNSUPPORTED_VERSION:
            return Allowed(resource, frozenset(_CODES), "The brokers have no transactions")
        return _refused(resource, error)
    return Allowed(resource, frozenset({*([DESCRIBE] if describes else []), *([WRITE] if writes else [])}))


async def _may_describe(client: KafkaClient, name: str, deadline: Deadline) -> bool:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    answer = await to_coordinator(client, TRANSACTION, name, request, deadline)
    (found,) = answer.transaction_states
    return _allows(client, name, found.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


async def _may_write(client: KafkaClient, name: str, deadline: Deadline) -> bool:
    request = EndTxnRequest(transactional_id=name, producer_id=_NO_PRODUCER_ID, producer_epoch=0, committed=False)
    answer = await to_coordinator(client, TRANSACTION, name, request, deadline, _END_VERSION)
    return _allows(client, name, answer.error_code, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _allows(client: KafkaClient, name: str, code: int, expected: int) -> bool:
    """Return whether an error code shows that the user has the right; raise the error of an unrelated code."""
    if code in (0, expected):
        return True
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return False
    check_coordinator(client, TRANSACTION, name, code, f"Asking for the rights to transactional id {name} failed")
    raise error_for_code(code, f"Asking for the rights to transactional id {name} failed")


def _refused(resource: str, error: KafkaGroupError) -> Allowed:
    if error.code in _DENIED:
        # FindCoordinator needs DESCRIBE. READ and WRITE imply DESCRIBE, so the user has none of these rights.
        return Allowed(resource, frozenset())
    if error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return Allowed(resource, frozenset(_CODES), str(error).rstrip("."))
    if error.code == ErrorCode.UNSUPPORTED_VERSION:
        return Allowed(resource, None, "the brokers are too old to return them")
    return Allowed(resource, None, str(error).rstrip("."))
