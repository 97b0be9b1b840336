"""The commands `kafkagroup transactions list | commit | abort | repair`, for the transactions of an exactly-once sink.

A query that restarts commits or aborts its transactions itself; the commands are for a query that will not restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from kafka_source.cli import show
from kafka_source.cli.common import DRY_RUN, Config, Servers, Yes, console, exit_on_error, settings_of
from kafka_source.cluster.lookup import Cluster
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.sink.two_phase.commit_markers import lost_markers, write_marker
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.ledger import Decision
from kafka_source.sink.two_phase.open_transactions import Described

transactions = typer.Typer(no_args_is_help=True, help="Show and finish the transactions of exactly-once sinks.")

Prefix = Annotated[str, typer.Option("--prefix", "-p", help="The sink's transactional.id.prefix.")]

_SECONDS = 60.0


@transactions.command("list")
def list_them(prefix: Prefix, servers: Servers, config: Config = None) -> None:
    """List a sink's open transactions: those whose commit is decided but not finished, and those without a decision."""
    with _sink(prefix, servers, config) as (client, phases):
        _show(prefix, *_look(client, phases))


@transactions.command()
def commit(
    prefix: Prefix,
    servers: Servers,
    config: Config = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue without the records of transactions that timed out.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Commit the transactions of a decided batch whose driver could not finish the commit.

    Some of the batch's transactions may be committed already. Aborting the others would leave half a batch.
    """
    with _sink(prefix, servers, config) as (client, phases):
        decision, _ = _look(client, phases)
        _show(prefix, decision, [])
        if decision is None:
            return
        if not yes:
            console.print(DRY_RUN)
            return
        epoch = client.run(phases.begin(Deadline(_SECONDS), replays=accept_loss))
        client.run(phases.accept_loss(epoch, Deadline(_SECONDS)))
        lost = 0 if epoch.lost is None else len(epoch.lost.transactional_ids)
        count = len(decision.transactions) - lost
        text = f"; {lost} were lost" if lost else ""
        console.print(f"Committed {count} transactions of batch {decision.batch}{text}.")


@transactions.command()
def abort(prefix: Prefix, servers: Servers, config: Config = None, yes: Yes = False) -> None:
    """Abort the open transactions without a decision, so that read_committed readers no longer wait for them.

    Stop the query with this prefix first: its current batch would fail, and be written again after a restart.
    """
    with _sink(prefix, servers, config) as (client, phases):
        decision, undecided = _look(client, phases)
        _show(prefix, decision, undecided)
        if not undecided:
            return
        if not yes:
            console.print(DRY_RUN)
            return
        client.run(phases.abort_undecided(Deadline(_SECONDS)))
        console.print(f"Aborted {len(undecided)} transactions.")


@transactions.command()
def repair(
    prefix: Prefix,
    servers: Servers,
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="A topic the sink writes to. Can be repeated.")],
    config: Config = None,
    yes: Yes = False,
) -> None:
    """Write commit markers that a broker has lost, so that readers see the committed transactions.

    Needs the permission ALTER on the cluster.
    """
    with _sink(prefix, servers, config) as (client, _):
        partitions = Cluster(settings_of(servers, config)).partitions(TopicSelection(topics=tuple(topic)))
        missing = client.run(lost_markers(client, prefix, partitions, Deadline(_SECONDS)))
        if not missing:
            console.print(f"No commit marker of {prefix} is missing.")
            return
        console.print(show.markers(missing))
        if not yes:
            console.print(DRY_RUN)
            return
        for lost in missing:
            client.run(write_marker(client, lost, Deadline(_SECONDS)))
        console.print(f"Wrote {len(missing)} commit markers.")


def _look(client: KafkaClient, phases: TwoPhaseCommit) -> tuple[Decision | None, list[Described]]:
    deadline = Deadline(_SECONDS)
    return client.run(phases.decided(deadline)), client.run(phases.undecided(deadline))


def _show(prefix: str, decision: Decision | None, undecided: list[Described]) -> None:
    if decision is None and not undecided:
        console.print(f"Found no such transactions of the sink {prefix}.")
        return
    if decision is not None:
        console.print(show.decided(decision))
    if undecided:
        console.print(show.undecided(undecided, time.time()))


@contextmanager
def _sink(prefix: str, servers: str, config: list[str] | None) -> Iterator[tuple[KafkaClient, TwoPhaseCommit]]:
    with exit_on_error(), closing(KafkaClient(settings_of(servers, config))) as client:
        yield client, TwoPhaseCommit(client, prefix)
