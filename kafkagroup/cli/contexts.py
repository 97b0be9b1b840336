"""The command `kafkagroup contexts`: the contexts of this user, without their secrets."""

from __future__ import annotations

from kafkagroup.cli.common import OutputOption, exit_on_error
from kafkagroup.cli.context_file import contexts, contexts_path
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit


def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List the contexts: named sets of settings in a file. Values of settings other than the brokers are not shown.

    The file is KAFKAGROUP_CONTEXTS, or kafkagroup/contexts.ini in XDG_CONFIG_HOME, which is ~/.config by default.
    """
    with exit_on_error():
        from kafkagroup.cli.context_rows import context_rows

        rows = context_rows(contexts().values())
        # Columns that say nothing in any row are left out of the table.
        hidden = frozenset() if any(one.command_config for one in rows) else frozenset({"command_config"})
        empty = f"There are no contexts: {contexts_path()} does not exist, or is empty."
        emit(output, Listing("contexts", rows, hidden=hidden, empty=empty))
