"""The command `kafkagroup`: its commands, in the order of its help."""

from __future__ import annotations

import typer

from kafkagroup.cli.checkpoints import checkpoint, import_checkpoint
from kafkagroup.cli.groups import create, delete, list_groups, plan, show_group
from kafkagroup.cli.installation import doctor, list_contexts, list_options
from kafkagroup.cli.offsets import offsets, rewind
from kafkagroup.cli.quota import quota
from kafkagroup.cli.topics import peek, topics
from kafkagroup.cli.transactions import transactions
from kafkagroup.cli.watch import plot, watch

# Without rich's markup the help is plain text: it is there at once, and reads the same in a pipe.
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Look at Kafka's consumer groups and topics, move groups, finish transactions, set quotas, check an "
    "installation. What changes something shows the change and needs --yes.",
)

# The list of commands shows one line of each; without a short text it would cut the first sentence.
app.command("groups", short_help="List groups with types, states, lag.")(list_groups)
app.command("group", short_help="Show a group: members, partitions, lag.")(show_group)
app.command(short_help="Watch lag and rates of groups.")(watch)
app.command(short_help="Create a group with chosen offsets.")(create)
app.command(short_help="Set the committed offsets of a group.")(rewind)
app.command(short_help="Delete a group with its offsets.")(delete)
app.add_typer(offsets, name="offsets")
app.command(short_help="List topics, or the partitions of some.")(topics)
app.command(short_help="Show records of a topic.")(peek)
app.command(short_help="Show what an assignor would assign.")(plan)
app.add_typer(transactions, name="transactions")
app.add_typer(quota, name="quota")
app.add_typer(checkpoint, name="checkpoint")
app.command("import-checkpoint", short_help='Move a query here from format("kafka").')(import_checkpoint)
app.command(short_help="Draw recorded samples: lag, throughput.")(plot)
app.command(short_help="Check an installation and a cluster.")(doctor)
app.command("contexts", short_help="List named settings of clusters.")(list_contexts)
app.command("options", short_help="List the options of the format.")(list_options)
