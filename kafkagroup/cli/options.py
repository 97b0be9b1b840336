"""The command `kafkagroup options`: the options of the format."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkagroup.cli.common import OutputOption
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit


def list_options(
    name: Annotated[str, typer.Argument(show_default=False, help="Only options whose name contains this.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the options of the format, with their values and defaults."""
    from kafkagroup.cli.option_rows import option_rows

    emit(output, Listing("options", option_rows(name), empty="There are no such options."))
