"""The commands `kafkagroup transactions list | commit | abort | repair`, for the transactions of an exactly-once sink.

A restarted query commits or aborts its transactions itself; the commands are for a query that will not restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import DRY_RUN, OutputOption, Yes, emit, exit_on_error, note
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafka_source.kafka_client import KafkaClient
    from kafka_source.sink.two_phase.committer import TwoPhaseCommit
    from kafka_source.sink.two_phase.ledger import Decision
    from kafka_source.sink.two_phase.open_transactions import Described

transactions = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and finish the transactions of exactly-once sinks."
)

Prefix = Annotated[str, typer.Option("--prefix", "-p", metavar="PREFIX", help="The sink's transactional.id.prefix.")]

_STEP_SECONDS = 60.0


@transactions.command("list", short_help="List unfinished transactions.")
@with_connection
def list_them(prefix: Prefix, connection: Connection = NO_OPTIONS, output: OutputOption = Output.TABLE) -> None:
    """List a sink's open transactions: decided (the commit is not finished) and undecided."""
    with _sink(prefix, connection) as (client, phases):
        _show(output, prefix, *_decision_and_transactions(client, phases))


@transactions.command(short_help="Commit decided transactions.")
@with_connection
def commit(
    prefix: Prefix,
    connection: Connection = NO_OPTIONS,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue without the records of transactions that timed out.")
    ] = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Commit the transactions of a decided batch whose driver could not finish the commit.

    Some of the batch's transactions may be committed already, so an abort of the others would leave half a batch. Open
    transactions without a decision are aborted, as at the next start of the query.

    First stop the query with this prefix. If the query runs, its current batch fails, and is written again after a
    restart.
    """
    with _sink(prefix, connection) as (client, phases):
        from kafka_source.kafka_client import Deadline

        decision, undecided = _decision_and_transactions(client, phases)
        # Without a decision the command changes nothing.
        _show(output, prefix, decision, [] if decision is None else undecided)
        if decision is None:
            return
        if undecided:
            note(f"The {len(undecided)} undecided transactions are aborted.")
        if not yes:
            note(DRY_RUN)
            return
        epoch = client.run(phases.begin(Deadline(_STEP_SECONDS), replays=accept_loss))
        client.run(phases.accept_loss(epoch, Deadline(_STEP_SECONDS)))
        # If a decided transaction is lost, `begin` leaves the undecided transactions open.
        client.run(phases.abort_undecided(Deadline(_STEP_SECONDS), epoch))
        lost = epoch.lost_count
        count = len(decision.transactions) - lost
        text = f"; {lost} were lost" if lost else ""
        note(f"Committed {count} transactions of batch {decision.batch}{text}.")


@transactions.command(short_help="Abort transactions without a commit decision.")
@with_connection
def abort(
    prefix: Prefix, connection: Connection = NO_OPTIONS, yes: Yes = False, output: OutputOption = Output.TABLE
) -> None:
    """Abort the open transactions that have no decision, so that read_committed readers no longer wait for them.

    First stop the query with this prefix. If the query runs, its current batch fails, and is written again after a
    restart.
    """
    with _sink(prefix, connection) as (client, phases):
        from kafka_source.kafka_client import Deadline

        decision, undecided = _decision_and_transactions(client, phases)
        _show(output, prefix, decision, undecided)
        if not undecided:
            return
        if not yes:
            note(DRY_RUN)
            return
        aborted = client.run(phases.abort_undecided(Deadline(_STEP_SECONDS)))
        note(f"Aborted {len(aborted)} transactions.")
        if len(aborted) < len(undecided):
            note("Some of the listed transactions have ended, or another driver has begun a batch: run `list` again.")


@transactions.command(short_help="Write lost commit markers.")
@with_connection
def repair(
    prefix: Prefix,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", metavar="TOPIC", help="A topic of the sink. Can be repeated.")
    ],
    connection: Connection = NO_OPTIONS,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write commit markers that a broker has lost, so that readers see the committed transactions.

    Needs the permission ALTER on the cluster.
    """
    with _sink(prefix, connection) as (client, phases):
        from kafka_source.cluster.lookup import Cluster
        from kafka_source.kafka_client import Deadline
        from kafka_source.model.topic_selection import TopicSelection
        from kafka_source.sink.two_phase.visibility import lost_markers, write_marker
        from kafkagroup.cli.rows import marker_rows

        settings = connection.settings()
        partitions = Cluster(settings, client=client).partitions(TopicSelection(topics=tuple(topic)))
        decision = client.run(phases.decided(Deadline(_STEP_SECONDS)))
        decided = () if decision is None else decision.transactions
        missing = client.run(lost_markers(client, prefix, decided, partitions, Deadline(_STEP_SECONDS)))
        nothing = f"No commit marker of {prefix} is missing."
        emit(output, Listing("markers", marker_rows(missing), "committed, commit marker missing", empty=nothing))
        if not missing:
            return
        if not yes:
            note(DRY_RUN)
            return
        for lost in missing:
            client.run(write_marker(client, lost, Deadline(_STEP_SECONDS)))
        note(f"Wrote {len(missing)} commit markers.")


def _decision_and_transactions(client: KafkaClient, phases: TwoPhaseCommit) -> tuple[Decision | None, list[Described]]:
    from kafka_source.kafka_client import Deadline

    deadline = Deadline(_STEP_SECONDS)
    return client.run(phases.decided(deadline)), client.run(phases.undecided(deadline))


def _show(output: Output, prefix: str, decision: Decision | None, undecided: list[Described]) -> None:
    from kafkagroup.cli.rows import tables, transaction_rows

    rows = transaction_rows(decision, undecided, time.time())
    if output is Output.TABLE and rows:
        emit(output, *tables(rows))
    else:
        emit(output, Listing("transactions", rows, empty=f"The sink {prefix} has no transactions to finish."))


@contextmanager
def _sink(prefix: str, connection: Connection) -> Iterator[tuple[KafkaClient, TwoPhaseCommit]]:
    with exit_on_error():
        from kafka_source.kafka_client import KafkaClient
        from kafka_source.sink.two_phase.committer import TwoPhaseCommit

        with closing(KafkaClient(connection.settings())) as client:
            yield client, TwoPhaseCommit(client, prefix)
