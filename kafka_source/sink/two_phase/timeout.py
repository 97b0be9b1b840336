"""Check the transactions' timeout against the brokers' limit, before the first batch."""

from __future__ import annotations

from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, error_for_code
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient
from kafka_source.kafka_client.messages.cluster import DescribeConfigsRequest
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.sink.produce.producer_config import transaction_timeout_ms
from kafka_source.transactions.open_transaction import initialise

_BROKER = 4  # `ConfigResource.Type.BROKER`
_LIMIT = "transaction.max.timeout.ms"


class _Check:
    """Whether the brokers have accepted the timeout."""

    def __init__(self, _: tuple[Settings, str]) -> None:
        self.done = False


_checks = ProcessCache(_Check, max_size=64)


async def check_timeout_once(client: KafkaClient, settings: Settings, prefix: str, deadline: Deadline) -> None:
    """Call `check_timeout` once in this process for each prefix, cluster and timeout.

    Raises:
        InvalidConfigurationError: As `check_timeout`.
    """
    check = _checks.of((settings, prefix))
    if not check.done:
        await check_timeout(client, prefix, transaction_timeout_ms(settings), deadline)
        check.done = True


async def check_timeout(client: KafkaClient, prefix: str, timeout_ms: int, deadline: Deadline) -> None:
    """Check the timeout against `transaction.max.timeout.ms` of the broker that coordinates `{prefix}-driver`.

    The check reads the broker's configuration (DescribeConfigs), which changes nothing. This needs the right
    DESCRIBE_CONFIGS on the cluster. If the broker does not tell its limit, the check initialises `{prefix}-driver` with
    the timeout, and the coordinator refuses a timeout that is too high. That fences other drivers of the prefix, as the
    begin of the next batch does anyway.

    Args:
        client: Client of the cluster that the sink writes to.
        prefix: The sink's `transactional.id.prefix`.
        timeout_ms: Timeout of the tasks' transactions, in milliseconds.
        deadline: Limit for the whole call.

    Raises:
        InvalidConfigurationError: The timeout is above the limit.
        AuthenticationError: The user has no right to the transactional id.
        KafkaGroupError: The coordinator does not answer in time.
    """
    limit = await _limit(client, f"{prefix}-driver", deadline)
    if limit is None:
        await _check_by_initialising(client, prefix, timeout_ms, deadline)
    elif timeout_ms > limit:
        raise _too_high(timeout_ms, f"{_LIMIT}={limit}")


async def _check_by_initialising(client: KafkaClient, prefix: str, timeout_ms: int, deadline: Deadline) -> None:
    try:
        await initialise(client, f"{prefix}-driver", timeout_ms, deadline)
    except InvalidConfigurationError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise _too_high(timeout_ms, f"{_LIMIT}, which this user cannot read") from None


def _too_high(timeout_ms: int, limit: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"kafka.transaction.timeout.ms={timeout_ms} is above the brokers' limit, {limit}. Lower the timeout or raise "
        "the limit.",
        code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    )


async def _limit(client: KafkaClient, transactional_id: str, deadline: Deadline) -> int | None:
    """Return the limit of the broker that coordinates a transactional id, in milliseconds; None if it does not tell."""
    what = f"Reading {_LIMIT} of the coordinator of transactional id {transactional_id} failed"

    async def ask() -> int | None:
        node_id = (await client.coordinator(transactional_id, deadline, TRANSACTION)).node_id
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_LIMIT]
        )
        answer = await client.send(node_id, DescribeConfigsRequest(resources=[resource]), deadline)
        (result,) = answer.results
        if result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None
        if result.error_code:
            raise error_for_code(result.error_code, what)
        # A managed service may leave out settings that its users cannot change.
        return next((int(config.value) for config in result.configs if config.name == _LIMIT and config.value), None)

    return await client.retrying(ask, deadline)
