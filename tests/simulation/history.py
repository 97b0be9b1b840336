"""Give the history of a run to a checker that is not ours: its writers, its micro-batches, and a reader of all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.simulation.brokers.logs import COMMITTED, OPEN
from tests.simulation.clients.jobs import OUTPUT
from tests.simulation.clients.spark import Output
from tests.simulation.parts import TOPIC
from tests.simulation.run import Run
from tests.simulation.scenario import LOSES_RECORDS, Scenario, scenario_of
from tests.support.history import History, Record, parts

# A sink writes records twice if an operator rewinds its group, and out of order if the tasks change; another member of
# the group may read records instead.
_EXCLUDED = (*LOSES_RECORDS, "rewind", "change options", "read by another")
# The partitions of the output have keys from here on; those of the input have their numbers.
_OUTPUT_KEYS = 1000
# A number stands for a record of the output: the partition of the input, and the offset there.
_OFFSETS = 1_000_000
_WRITER, _READER, _QUERIES = 0, 1, 2


def scenario_to_judge(seed: int) -> Scenario | None:
    """Return a seed's scenario, in which each record has one copy; None: the seed has no such sink."""
    found = scenario_of(seed)
    if found.commit != "sink" or not found.reading.committed:
        return None
    faults = tuple(one for one in found.faults if one.kind not in _EXCLUDED)
    return replace(found, faults=faults, timeout_ms=600_000)


def history_of(run: Run) -> History:
    """Return the history of a run that has ended.

    A writer of the input writes each record batch. Each micro-batch is a transaction, which writes the committed
    records of its tasks to the output. Then a reader reads the output, and takes each copy for the record itself too.
    """
    history, cluster = History(), run.cluster
    for key, partition in enumerate(cluster.topics[TOPIC].partitions):
        for batch in partition.read.batches:
            if batch.offsets and not batch.control:
                records = [(key, (offset, offset)) for offset in batch.offsets]
                history.send(_WRITER, records, outcome=":ok" if batch.aborted_from < 0 else ":fail")
    copies = list(_copies(run.parts.output))
    written: dict[str, list[Record]] = {}
    # The checker needs unique values in each partition, so a second copy is only read.
    for one in {(one.copy[0], one.copy[1][1]): one for one in reversed(copies)}.values():
        written.setdefault(one.micro_batch, []).append(one.copy)
    names = [query.name for query in run.parts.queries]
    for micro_batch, records in sorted(written.items(), key=lambda one: int(one[0].split()[1])):
        history.send(_QUERIES + names.index(micro_batch.split()[0]), sorted(records))
    history.assign(_READER, {key for one in copies for key, _ in (one.copy, one.record)})
    read = [one for one in copies if one.can_be_read]
    for part in parts([one.copy for one in read] + [one.record for one in read]):
        history.poll(_READER, part)
    history.poll(_READER, [])
    return history


@dataclass(frozen=True)
class _Copy:
    """A committed record of the output, and the record of the input that it is a copy of.

    Attributes:
        can_be_read: Whether no earlier transaction in the log is open.
    """

    micro_batch: str
    copy: Record
    record: Record
    can_be_read: bool


def _copies(output: Output) -> Iterator[_Copy]:
    """Yield the committed records of the output, in the order of its logs."""
    for key, log in enumerate((one.log for one in output.cluster.topics[OUTPUT].partitions), _OUTPUT_KEYS):
        at, can_be_read = 0, True
        for appended in log.batches:
            can_be_read &= appended.state != OPEN
            for value in appended.values if appended.state == COMMITTED else ():
                micro_batch, topic_id, number, _, start, end = json.loads(value)
                source = output.cluster.log_of(topic_id, number)
                for offset in range(start, end):
                    if source is None or offset not in source.read.gaps:
                        copy = key, (at, number * _OFFSETS + offset)
                        yield _Copy(micro_batch, copy, (number, (offset, offset)), can_be_read)
                        at += 1
