"""`kafkagroup transactions list | commit | abort | repair`: what an exactly-once sink has left open.

A query does all of this itself when it runs again; the commands are for one that will not.
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

transactions = typer.Typer(no_args_is_help=True, help="What exactly-once sinks have left open.")

Prefix = Annotated[str, typer.Option("--prefix", "-p", help="The sink's transactional.id.prefix.")]

_SECONDS = 60.0


@transactions.command("list")
def list_them(prefix: Prefix, servers: Servers, config: Config = None) -> None:
    """A sink's open transactions: those that are decided and not committed yet, and those that nobody decided on."""
    with _sink(prefix, servers, config) as (client, phases):
        _show(prefix, *_look(client, phases))


@transactions.command()
def commit(
    prefix: Prefix,
    servers: Servers,
    config: Config = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without the records of transactions that ran out of time.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Commit what a driver had decided and could not finish; anything else would be half a batch."""
    with _sink(prefix, servers, config) as (client, phases):
        decision, _ = _look(client, phases)
        _show(prefix, decision, [])
        if decision is None:
            return
        if not yes:
            console.print(DRY_RUN)
            return
        turn = client.run(phases.begin(Deadline(_SECONDS), replays=accept_loss))
        client.run(phases.accept_loss(turn, Deadline(_SECONDS)))
        count = len(decision.transactions) - len(turn.lost)
        lost = f", {len(turn.lost)} are lost" if turn.lost else ""
        console.print(f"Committed {count} transactions of batch {decision.batch}{lost}.")


@transactions.command()
def abort(prefix: Prefix, servers: Servers, config: Config = None, yes: Yes = False) -> None:
    """Abort what nobody has decided on, so that readers need not wait for it.

    The query of the prefix must not run: its batch under way would fail, and be written again when it restarts.
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
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="A topic that the sink writes to.")],
    config: Config = None,
    yes: Yes = False,
) -> None:
    """Write commit markers that a broker has lost: transactions that are committed and cannot be seen.

    Takes the right to alter the cluster.
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
        console.print(f"Nothing is open of {prefix}.")
        return
    if decision is not None:
        console.print(show.decided(decision))
    if undecided:
        console.print(show.undecided(undecided, time.time()))


@contextmanager
def _sink(prefix: str, servers: str, config: list[str] | None) -> Iterator[tuple[KafkaClient, TwoPhaseCommit]]:
    with exit_on_error(), closing(KafkaClient(settings_of(servers, config))) as client:
        yield client, TwoPhaseCommit(client, prefix)
