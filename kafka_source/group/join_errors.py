"""Errors for a member that its group refuses; they name the setting to change."""

from __future__ import annotations

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import KafkaGroupError, error_for_code


def refusal(
    code: int, what: str, *, group: str, instance_id: str | None, protocols: tuple[str, ...], session_timeout_ms: int
) -> KafkaGroupError:
    """Return the error to raise for an error code after which a member stops.

    Args:
        code: Kafka's error code.
        what: The request as the beginning of a sentence: "Joining".
        group: The group id.
        instance_id: The member's `group.instance.id`, or None.
        protocols: The assignors that the member offered.
        session_timeout_ms: The session timeout that the member requested.
    """
    who = f"{what} group {group}" + (f" as {instance_id}" if instance_id else "") + " failed"
    reasons: dict[int, str] = {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: f"its members do not all support one of {', '.join(protocols)}",
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            f"kafka.session.timeout.ms={session_timeout_ms} is not allowed by the brokers"
        ),
        ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers allow",
        ErrorCode.INVALID_GROUP_ID: "the brokers do not accept this kafka.group.id",
        # What Kafka 4.3 answers when a group's one record is too large; its log has a RecordTooLargeException.
        ErrorCode.UNKNOWN_SERVER_ERROR: (
            "the coordinator's log says why. If the group has thousands of members, its record in __consumer_offsets "
            "may be larger than the brokers' message.max.bytes: lower group.members, or raise that"
        ),
    }
    return error_for_code(code, who, reason=reasons.get(code, ""))
