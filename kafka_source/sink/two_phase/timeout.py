"""How long a task's transaction may be open: checked against the brokers' limit before the first batch."""

from __future__ import annotations

from kafka_source.client_config import Settings
from kafka_source.error_codes import INVALID_TRANSACTION_TIMEOUT
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import DescribeConfigsRequest
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.sink.produce.producer_config import transaction_timeout_ms
from kafka_source.transactions.open_transaction import initialise

_BROKER = 4
_LIMIT = "transaction.max.timeout.ms"


class _Check:
    """Whether the brokers have accepted the timeout."""

    def __init__(self, _: tuple[Settings, str]) -> None:
        self.done = False


_checks = ProcessCache(_Check, most=64)


async def check_timeout_once(client: KafkaClient, settings: Settings, prefix: str, deadline: Deadline) -> None:
    """Do what `check_timeout` does, once in this process for each prefix, cluster and timeout.

    Raises:
        InvalidConfigurationError: The brokers do not accept the timeout; names their limit.
    """
    check = _checks.of((settings, prefix))
    if not check.done:
        await check_timeout(client, prefix, transaction_timeout_ms(settings), deadline)
        check.done = True


async def check_timeout(client: KafkaClient, prefix: str, timeout_ms: int, deadline: Deadline) -> None:
    """Ask the brokers whether they take it.

    Raises:
        InvalidConfigurationError: They do not; names their limit.
    """
    try:
        await initialise(client, f"{prefix}-driver", timeout_ms, deadline)
    except InvalidConfigurationError as error:
        if error.code != INVALID_TRANSACTION_TIMEOUT:
            raise
        limit = await _limit(client, deadline)
        raise InvalidConfigurationError(
            f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow, {_LIMIT}={limit}. Lower the "
            "one or raise the other.",
            code=error.code,
        ) from None


async def _limit(client: KafkaClient, deadline: Deadline) -> str:
    try:
        node_id = min((await client.metadata((), deadline)).brokers)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_LIMIT]
        )
        answer = await client.send(node_id, DescribeConfigsRequest(resources=[resource]), deadline)
        return str(answer.results[0].configs[0].value)
    except (KafkaGroupError, IndexError):
        return "not known to this user"
