"""The assignors that a query's options name, with their own options."""

from collections.abc import Mapping

from assignors import Assignor, load
from kafka_source.errors import OptionError
from kafka_source.options.catalog import ReadOptions

REDUNDANT = "redundant"
"""The assignor that gives each partition to several members."""


def strategies_of(options: ReadOptions) -> list[Assignor]:
    """Return the assignors that the options name, in order of preference.

    Raises:
        OptionError: The assignor does not exist, or refuses its options.
    """
    arguments = dict(options.assignor_options or {})
    names = options.partition_assignment_strategy
    if options.redundant_copies is not None and REDUNDANT in names:
        arguments[REDUNDANT] = {**arguments.get(REDUNDANT, {}), "copies": options.redundant_copies}
    if unused := sorted(set(arguments) - set(names)):
        raise OptionError(
            "assignor.options", unused[0], f"options of kafka.partition.assignment.strategy={','.join(names)}"
        )
    return [_assignor(name, arguments.get(name, {})) for name in names]


def _assignor(name: str, arguments: Mapping[str, object]) -> Assignor:
    try:
        return load(name, arguments)
    except ValueError as error:
        option = "assignor.options" if arguments else "kafka.partition.assignment.strategy"
        raise OptionError(option, arguments or name, f"options of the assignor: {error}") from None
