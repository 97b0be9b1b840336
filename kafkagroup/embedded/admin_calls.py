"""Admin requests of the embedded Kafka to its own brokers, with confluent-kafka's admin client.

confluent-kafka is imported at the first call, because the pytest plugin must load quickly.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

_ANSWER_SECONDS = 30.0

_T = TypeVar("_T")


def admin_client(settings: Mapping[str, str]) -> AdminClient:
    """Return a new admin client without logging: connection errors are expected while a broker starts."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**settings, "log_level": 0})


def until(deadline: float, look: Callable[[], _T | None]) -> _T | None:
    """Call `look` until its result is true, and return this result; None after the deadline (`time.monotonic`)."""
    while True:
        if result := look():
            return result
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)


def view_of(settings: Mapping[str, str], topic: str | None = None) -> ClusterMetadata | None:
    """Return the metadata of the broker that `settings` names; None if the broker does not answer within 2 s.

    Each call creates a new client, because a client that knows other brokers might send its request to another broker.

    Args:
        settings: The client settings.
        topic: The only topic to describe; None: all topics. Describing many topics takes long.
    """
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        return admin_client(settings).list_topics(topic, timeout=2)
    return None


def answers(settings: Mapping[str, str]) -> bool:
    """Return whether the broker accepts a connection with these settings and answers."""
    return view_of(settings) is not None


def sees_brokers(settings: Mapping[str, str], expected: set[int]) -> bool:
    """Return whether the broker's metadata contains all `expected` brokers."""
    view = view_of(settings)
    return view is not None and expected <= set(view.brokers)


def sees_topic(settings: Mapping[str, str], name: str, partitions: int) -> bool:
    """Return whether the broker's metadata contains the topic, with a leader for each partition."""
    view = view_of(settings, name)
    topic = view.topics.get(name) if view else None
    return (
        topic is not None
        and len(topic.partitions) == partitions
        and all(partition.leader > 0 for partition in topic.partitions.values())
    )


def misses_topic(settings: Mapping[str, str], name: str) -> bool:
    """Return whether the broker's metadata does not contain the topic."""
    view = view_of(settings, name)
    return view is not None and not (name in view.topics and view.topics[name].partitions)


def create_topic(
    settings: Mapping[str, str], name: str, partitions: int, replication_factor: int, config: Mapping[str, object]
) -> None:
    """Create a topic.

    Raises:
        confluent_kafka.KafkaException: The broker refused the request.
    """
    from confluent_kafka.cimpl import NewTopic

    texts = {key: str(value) for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=texts)
    # Here and below the client stays in a variable: without a reference it is destroyed with its calls.
    admin = admin_client(settings)
    admin.create_topics([topic])[name].result(_ANSWER_SECONDS)


def delete_topic(settings: Mapping[str, str], name: str) -> None:
    """Delete a topic.

    Raises:
        confluent_kafka.KafkaException: The broker refused the request.
    """
    admin = admin_client(settings)
    admin.delete_topics([name])[name].result(_ANSWER_SECONDS)


def set_scram_passwords(settings: Mapping[str, str], users: Mapping[str, str]) -> None:
    """Set each user's password for both SCRAM mechanisms."""
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialAlteration,
        UserScramCredentialUpsertion,
    )

    admin = admin_client(settings)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for user, password in users.items()
        ]
        for result in admin.alter_user_scram_credentials(changes).values():
            result.result(_ANSWER_SECONDS)


def allow(settings: Mapping[str, str], user: str, resource: str, name: str, operations: Sequence[str]) -> None:
    """Create ACLs that allow a user operations on one resource.

    Args:
        settings: The client settings of a super user.
        user: The user's name.
        resource: A name of confluent-kafka's `ResourceType`, in any case.
        name: The resource's name.
        operations: Names of confluent-kafka's `AclOperation`, in any case.
    """
    from confluent_kafka.admin import AclBinding

    bindings = [_acl(AclBinding, user, resource, name, operation) for operation in operations]
    admin = admin_client(settings)
    for result in admin.create_acls(bindings).values():
        result.result(_ANSWER_SECONDS)


def sees_acl(settings: Mapping[str, str], user: str, resource: str, name: str, operation: str) -> bool:
    """Return whether the broker has the ACL that `allow` created."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AclBindingFilter

    wanted = _acl(AclBindingFilter, user, resource, name, operation)
    admin = admin_client(settings)
    with contextlib.suppress(KafkaException):
        return bool(admin.describe_acls(wanted).result(_ANSWER_SECONDS))
    return False


def _acl(make: Callable[..., _T], user: str, resource: str, name: str, operation: str) -> _T:
    from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    what, literal = ResourceType[resource.upper()], ResourcePatternType.LITERAL
    return make(what, name, literal, f"User:{user}", "*", AclOperation[operation.upper()], AclPermissionType.ALLOW)
