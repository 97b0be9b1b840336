"""The command `kafkagroup topics`: the topics of a cluster, or the partitions of some."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkagroup.cli.common import OutputOption, check_regex, exit_on_error
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection


@with_connection
def topics(
    connection: Connection = NO_OPTIONS,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Show the partitions of this topic. Can be repeated."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Only topics whose name matches somewhere.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also Kafka's own topics.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics of a cluster, or with --topic the partitions of topics with their leaders and offsets."""
    check_regex(pattern)
    with exit_on_error():
        from kafkagroup.admin import Topics

        found = Topics(connection.settings())
        if topic:
            emit(output, Listing("partitions", found.describe(*topic)))
        else:
            rows = found.list(pattern=pattern, internal=internal)
            emit(output, Listing("topics", rows, empty="There are no such topics."))
