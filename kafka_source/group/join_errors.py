"""Why a group refuses a member, in words that name the setting to change."""

from __future__ import annotations

from kafka_source.errors import InvalidConfigurationError, KafkaGroupError, error_for_code

INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
INVALID_SESSION_TIMEOUT = 26
GROUP_AUTHORIZATION_FAILED = 30
GROUP_MAX_SIZE_REACHED = 81


def refusal(
    code: int, what: str, *, group: str, instance_id: str | None, protocols: tuple[str, ...], session_timeout_ms: int
) -> KafkaGroupError:
    """The error for a code after which a member stops.

    Args:
        code: Kafka's.
        what: The request, as the beginning of a sentence: "Joining".
        group: The group's id.
        instance_id: The member's, or None.
        protocols: The strategies it offered.
        session_timeout_ms: The session timeout it asked for.
    """
    who = f"{what} group {group}" + (f" as {instance_id}" if instance_id else "") + " failed"
    if code == INCONSISTENT_GROUP_PROTOCOL:
        return InvalidConfigurationError(
            f"{who}: its members share no strategy with {', '.join(protocols)} "
            "(INCONSISTENT_GROUP_PROTOCOL). Set kafka.partition.assignment.strategy to one that all members of the "
            "group support, or use another group.",
            code=code,
        )
    if code == INVALID_SESSION_TIMEOUT:
        return InvalidConfigurationError(
            f"{who}: the brokers do not allow kafka.session.timeout.ms={session_timeout_ms} "
            "(INVALID_SESSION_TIMEOUT). It must lie between their group.min.session.timeout.ms and "
            "group.max.session.timeout.ms.",
            code=code,
        )
    if code == GROUP_MAX_SIZE_REACHED:
        return InvalidConfigurationError(
            f"{who}: the group has as many members as the brokers allow (GROUP_MAX_SIZE_REACHED). Lower group.members, "
            "or raise group.max.size of the brokers.",
            code=code,
        )
    if code == INVALID_GROUP_ID:
        return InvalidConfigurationError(
            f"{who}: the brokers do not take this kafka.group.id (INVALID_GROUP_ID), or the group is of another kind.",
            code=code,
        )
    return error_for_code(code, who)
