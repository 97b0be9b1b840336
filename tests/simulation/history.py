"""Give the history of a run to a checker that is not ours."""

import itertools
import json
from dataclasses import replace

from tests.simulation.brokers.logs import COMMITTED, OPEN
from tests.simulation.clients.jobs import OUTPUT
from tests.simulation.parts import TOPIC
from tests.simulation.run import Run
from tests.simulation.scenario import LOSES_RECORDS, Scenario, scenario_of
from tests.support.history import History

# A sink writes records twice if an operator rewinds its group, and out of order if the tasks change; another member of
# the group may read records instead.
_EXCLUDED = (*LOSES_RECORDS, "rewind", "change options", "read by another")


def scenario_to_judge(seed: int) -> Scenario | None:
    """Return a seed's scenario, in which each record has one copy; None: the seed has no such sink."""
    found = scenario_of(seed)
    if not found.by_sinks or not found.reading.committed:
        return None
    faults = tuple(one for one in found.faults if one.kind not in _EXCLUDED)
    return replace(found, faults=faults, timeout_ms=600_000)


def history_of(run: Run) -> History:
    """Return the history of a run that has ended: a writer of the input, and a reader of the input's copies."""
    history, partitions = History(), run.cluster.topics[TOPIC].partitions
    for key, partition in enumerate(partitions):
        for batch in partition.read.batches:
            if batch.offsets and not batch.control:
                records = [(key, (offset, offset)) for offset in batch.offsets]
                history.send(records, is_aborted=batch.aborted_from >= 0)
    copies = []
    for output in run.cluster.topics[OUTPUT].partitions:
        # A reader waits for an open transaction.
        readable = itertools.takewhile(lambda one: one.state != OPEN, output.log.batches)
        for value in (value for one in readable if one.state == COMMITTED for value in one.values):
            _, _, key, _, start, end = json.loads(value)
            kept = (offset for offset in range(start, end) if offset not in partitions[key].read.gaps)
            copies += [(key, (offset, offset)) for offset in kept]
    history.read(copies)
    return history
