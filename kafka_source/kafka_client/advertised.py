"""The addresses that brokers advertise: whether an address has answered this process, and the error if none answers.

If a broker has answered at an address of `bootstrap.servers`, its advertised address answers soon or never.
"""

from collections.abc import Iterable, Mapping

from kafka_source.client_config.servers import Endpoint

WARNING_SECONDS = 3.0
"""A warning names the advertised addresses if none of them has answered after this time."""

ERROR_SECONDS = 6.0
"""An error is raised if no address, of `bootstrap.servers` or advertised, has answered within this time."""

FIRST_SECONDS = 1.5
"""The time limit of the first connection, to one broker. After this time the client also tries other brokers."""

_MAX_NAMED = 3

# All endpoints that have answered this process. While brokers restart, no later client reports these endpoints.
_answered: set[Endpoint] = set()


def note_answer(endpoint: Endpoint) -> None:
    """Record that a broker has answered at an endpoint."""
    _answered.add(endpoint)


def has_answered(endpoints: Iterable[Endpoint]) -> bool:
    """Return whether a broker has answered this process at one of these endpoints."""
    return not _answered.isdisjoint(endpoints)


def describe_unreachable(entry: Endpoint, advertised: Mapping[int, Endpoint], problem: str) -> str:
    """Return the message that no advertised address answers.

    Args:
        entry: The address of `bootstrap.servers` that has answered.
        advertised: The advertised address of each broker, by node id.
        problem: The error of the last attempt, as a sentence.
    """
    named = [f"broker {node} advertises {endpoint}" for node, endpoint in sorted(advertised.items())]
    more = f", and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return (
        f"{entry} of kafka.bootstrap.servers has answered, but the brokers cannot be reached at the addresses that "
        f"they advertise: {', '.join(named[:_MAX_NAMED])}{more}. {problem} Set advertised.listeners of the brokers to "
        "addresses that this machine reaches. `kafkagroup doctor` tests each address."
    )
