"""The brokers' own quotas of clients (KIP-546): describe and alter quotas, and find a client's quota."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import sasl_of
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.kafka_client.messages.quota import AlterClientQuotasRequest, DescribeClientQuotasRequest

USER, CLIENT = "user", "client-id"
_DESCRIBE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quota of one entity.

    Attributes:
        entity: The entity's user and client id; None stands for the default of all users or client ids.
        values: The values by name, e.g. consumer_byte_rate in bytes a second.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def holding(quotas: Iterable[ClientQuota], user: str, client_id: str, name: str) -> float | None:
    """Return the value of a client's quota; None: no quota."""
    known = {frozenset(quota.entity.items()): quota.values[name] for quota in quotas if name in quota.values}
    # Kafka's order of precedence (KIP-55): the name itself, the default, no entry; users precede client ids.
    users: list[dict[str, str | None]] = [{USER: user}, {USER: None}, {}]
    clients: list[dict[str, str | None]] = [{CLIENT: client_id}, {CLIENT: None}, {}]
    entities = (frozenset((one | other).items()) for one, other in product(users, clients))
    return next((known[entity] for entity in entities if entity in known), None)


def value_of_client(settings: Settings, client_id: str, name: str) -> float | None:
    """Request the brokers' value for a client id and the user of the settings; None: no quota.

    Raises:
        KafkaGroupError: The brokers refuse the request.
    """
    client, sasl = cached_client(settings, "quota"), sasl_of(settings)
    quotas = client.run(describe_quotas(client, Deadline(_DESCRIBE_SECONDS)), _DESCRIBE_SECONDS + 1)
    return holding(quotas, sasl.username if sasl is not None and sasl.username else "ANONYMOUS", client_id, name)


async def describe_quotas(client: KafkaClient, deadline: Deadline) -> list[ClientQuota]:
    """Return all quotas that the brokers keep; needs DESCRIBE_CONFIGS on the cluster.

    Raises:
        KafkaGroupError: The brokers refuse the request.
    """
    connection = await client.any_connection(deadline)
    answer = await connection.send(DescribeClientQuotasRequest(components=[], strict=False), deadline.left)
    if answer.error_code:
        raise error_for_code(answer.error_code, "Describing client quotas failed", reason=answer.error_message or "")
    return [
        ClientQuota({e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values})
        for entry in answer.entries or []
    ]


async def alter_quota(
    client: KafkaClient, entity: Mapping[str, str | None], values: Mapping[str, float | None], deadline: Deadline
) -> None:
    """Set quotas of one entity, or remove quotas whose value is None; needs ALTER_CONFIGS on the cluster.

    Raises:
        KafkaGroupError: The brokers refuse the request.
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
