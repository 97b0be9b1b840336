"""The command `kafkagroup options`: the options of the format."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_source.cli.common import OutputOption
from kafka_source.cli.listing import Listing
from kafka_source.cli.output import Output, emit


def list_options(
    name: Annotated[str, typer.Argument(show_default=False, help="Only options whose name contains this.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the options of the format, with their values and defaults."""
    from kafka_source.cli.option_rows import option_rows

    emit(output, Listing("options", option_rows(name), empty="There are no such options."))
