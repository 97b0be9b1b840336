"""What the embedded Kafka asks of its own brokers, over confluent-kafka's admin client.

confluent-kafka is imported when the first call is made: importing the pytest plugin must cost nothing.
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
    """A new client that keeps its trouble to itself: a broker that is not up yet is no news."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**settings, "log_level": 0})


def until(deadline: float, look: Callable[[], _T | None]) -> _T | None:
    """What `look` returns as soon as it is true, None when the deadline (`time.monotonic`) is over."""
    while True:
        if result := look():
            return result
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)


def view_of(settings: Mapping[str, str]) -> ClusterMetadata | None:
    """The metadata as the broker that `settings` names sees it, None if it does not answer within 2 s.

    A new client each time: it knows no other broker yet, so that this one answers.
    """
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        return admin_client(settings).list_topics(timeout=2)
    return None


def answers(settings: Mapping[str, str]) -> bool:
    """Whether this broker lets us in."""
    return view_of(settings) is not None


def sees_brokers(settings: Mapping[str, str], expected: set[int]) -> bool:
    """Whether this broker knows all of `expected`."""
    view = view_of(settings)
    return view is not None and expected <= set(view.brokers)


def sees_topic(settings: Mapping[str, str], name: str, partitions: int) -> bool:
    """Whether this broker knows the topic with a leader for each partition."""
    view = view_of(settings)
    topic = view.topics.get(name) if view else None
    return (
        topic is not None
        and len(topic.partitions) == partitions
        and all(partition.leader > 0 for partition in topic.partitions.values())
    )


def create_topic(
    settings: Mapping[str, str], name: str, partitions: int, replication_factor: int, config: Mapping[str, object]
) -> None:
    """Makes a topic; raises `confluent_kafka.KafkaException` if the broker refuses."""
    from confluent_kafka.cimpl import NewTopic

    texts = {key: str(value) for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=texts)
    # A client that nobody holds is destroyed, and its calls with it: here and below it needs a name.
    admin = admin_client(settings)
    admin.create_topics([topic])[name].result(_ANSWER_SECONDS)


def delete_topic(settings: Mapping[str, str], name: str) -> None:
    """Deletes a topic; raises `confluent_kafka.KafkaException` if the broker refuses."""
    admin = admin_client(settings)
    admin.delete_topics([name])[name].result(_ANSWER_SECONDS)


def set_scram_passwords(settings: Mapping[str, str], users: Mapping[str, str]) -> None:
    """Sets each user's password for both SCRAM mechanisms."""
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
    """Allows a user operations on one resource, named by librdkafka's enumerations in any case."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    bindings = [
        AclBinding(
            ResourceType[resource.upper()],
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    admin = admin_client(settings)
    for result in admin.create_acls(bindings).values():
        result.result(_ANSWER_SECONDS)


def sees_acl(settings: Mapping[str, str], user: str, resource: str, name: str, operation: str) -> bool:
    """Whether this broker already obeys what `allow` said."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    wanted = AclBindingFilter(
        ResourceType[resource.upper()],
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation.upper()],
        AclPermissionType.ALLOW,
    )
    admin = admin_client(settings)
    with contextlib.suppress(KafkaException):
        return bool(admin.describe_acls(wanted).result(_ANSWER_SECONDS))
    return False
