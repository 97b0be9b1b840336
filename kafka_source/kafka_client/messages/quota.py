"""Messages of client quotas (KIP-546)."""

from collections.abc import Sequence

from kafka_source.kafka_client.messages.tables import (
    Request,
    Structure,
    array,
    boolean,
    field,
    float64,
    int8,
    int16,
    int32,
    string,
)


class AlterClientQuotasResponse(Structure):
    class EntryData(Structure):
        class EntityData(Structure):
            entity_type: str = field(string)
            entity_name: str | None = field(string, null_since=0)

        error_code: int = field(int16)
        error_message: str | None = field(string, null_since=0)
        entity: Sequence[EntityData] = field(array(EntityData))

    throttle_time_ms: int = field(int32)
    entries: Sequence[EntryData] = field(array(EntryData))


class AlterClientQuotasRequest(Request[AlterClientQuotasResponse], api=49, versions=(0, 1), flexible_from=1):
    class EntryData(Structure):
        class EntityData(Structure):
            entity_type: str = field(string)
            entity_name: str | None = field(string, null_since=0)

        class OpData(Structure):
            key: str = field(string)
            value: float = field(float64)
            remove: bool = field(boolean)

        entity: Sequence[EntityData] = field(array(EntityData))
        ops: Sequence[OpData] = field(array(OpData))

    entries: Sequence[EntryData] = field(array(EntryData))
    validate_only: bool = field(boolean)


class DescribeClientQuotasResponse(Structure):
    class EntryData(Structure):
        class EntityData(Structure):
            entity_type: str = field(string)
            entity_name: str | None = field(string, null_since=0)

        class ValueData(Structure):
            key: str = field(string)
            value: float = field(float64)

        entity: Sequence[EntityData] = field(array(EntityData))
        values: Sequence[ValueData] = field(array(ValueData))

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, null_since=0)
    entries: Sequence[EntryData] | None = field(array(EntryData), null_since=0)


class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse], api=48, versions=(0, 1), flexible_from=1):
    class ComponentData(Structure):
        entity_type: str = field(string)
        match_type: int = field(int8)
        match: str | None = field(string, null_since=0)

    components: Sequence[ComponentData] = field(array(ComponentData))
    strict: bool = field(boolean)
