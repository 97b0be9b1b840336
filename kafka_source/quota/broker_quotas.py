"""The brokers' own quotas of a client (KIP-546): which one holds, and asking for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import sasl_of
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.kafka_client.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka_source.quota.bounds import Bounds

USER, CLIENT = "user", "client-id"
_SECONDS = 15.0
_ANONYMOUS = "ANONYMOUS"

# Kafka's order (KIP-55): the first that is there holds. None is the default entity.
_PRECEDENCE = (
    ("own", "own"),
    ("own", "default"),
    ("own", "absent"),
    ("default", "own"),
    ("default", "default"),
    ("default", "absent"),
    ("absent", "own"),
    ("absent", "default"),
)


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """What the brokers keep for one entity.

    Attributes:
        entity: Its user and client id; None is the default of all.
        values: By name, e.g. consumer_byte_rate in bytes a second.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def holding(quotas: Iterable[ClientQuota], user: str, client_id: str, name: str) -> float | None:
    """The value that holds for a client, None if there is none."""
    known = {
        (_kind(quota.entity, USER, user), _kind(quota.entity, CLIENT, client_id)): quota.values[name]
        for quota in quotas
        if name in quota.values and set(quota.entity) <= {USER, CLIENT}
    }
    return next((known[place] for place in _PRECEDENCE if place in known), None)


def _kind(entity: Mapping[str, str | None], component: str, own: str) -> str:
    if component not in entity:
        return "absent"
    value = entity[component]
    return "default" if value is None else ("own" if value == own else "another")


async def describe_quotas(client: KafkaClient, deadline: Deadline) -> list[ClientQuota]:
    """All quotas that the brokers keep; needs DESCRIBE_CONFIGS on the cluster.

    Raises:
        KafkaGroupError: They do not tell.
    """
    connection = await client.any_connection(deadline)
    answer = await connection.send(DescribeClientQuotasRequest(components=[], strict=False), deadline.left)
    if answer.error_code:
        raise error_for_code(answer.error_code, "Asking for client quotas failed", reason=answer.error_message or "")
    return [
        ClientQuota({e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values})
        for entry in answer.entries or []
    ]


async def alter_quota(
    client: KafkaClient, entity: Mapping[str, str | None], values: Mapping[str, float | None], deadline: Deadline
) -> None:
    """Set (or with None remove) quotas of one entity; needs ALTER_CONFIGS on the cluster.

    Raises:
        KafkaGroupError: The brokers refuse.
    """
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[
                    entry.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    connection = await client.any_connection(deadline)
    answer: Any = await connection.send(request, deadline.left)
    for altered in answer.entries:
        if altered.error_code:
            raise error_for_code(
                altered.error_code, "Altering a client quota failed", reason=altered.error_message or ""
            )


class ClientQuotas:
    """Looks up the brokers' quota of one client.

    Args:
        settings: Of the Kafka clients.
        client_id: Of the fetchers or producers.
        rate: consumer_byte_rate or producer_byte_rate.
        otherwise: What holds where the brokers have none.
    """

    def __init__(self, settings: Settings, client_id: str, rate: str, otherwise: Bounds) -> None:
        self._settings = settings
        self._client_id = client_id
        self._rate = rate
        self._otherwise = otherwise
        sasl = sasl_of(settings)
        self._user = sasl.username if sasl is not None and sasl.username else _ANONYMOUS

    def look(self) -> Bounds:
        """The bounds of now.

        Raises:
            KafkaGroupError: The brokers do not tell.
        """
        client = cached_client(self._settings, "quota")
        quotas = client.run(describe_quotas(client, Deadline(_SECONDS)), _SECONDS + 1)
        found = holding(quotas, self._user, self._client_id, self._rate)
        if found is None:
            return self._otherwise
        return Bounds(found, self._otherwise.records_per_second)
