"""Groups that are paused, stopped and resumed from outside: the drawn halts, the command, and the checks.

`with_halts` adds halts to a scenario. In half of the scenarios nothing else happens: then each stop and each pause at
boundaries has to end in time, exactly at the boundaries.
"""

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import replace

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.side_groups import HALT, within
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError, UnknownGroupError
from kafka_source.model.halt import Halt, HaltKind, halt_of, while_it_holds
from kafka_source.model.stream_offset import StreamOffset
from kafkagroup.admin import AtTime, Halted, pause, resume, stop, wait_until_halted
from kafkagroup.admin.halts import At
from tests.simulation.allowances import UNSEEN
from tests.simulation.brokers.group_coordinator import Committed, Group, Key, Watch
from tests.simulation.parts import GROUP_ID, TOPIC, Parts
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.world import BEGIN, Died, Process

# Virtual seconds for which a trigger waits for the coordinator of the halts.
_LOOK = 5.0


def with_halts(scenario: Scenario) -> Scenario:
    """Halt and resume the group of a scenario, once or several times.

    Batches do not follow halts, so there are no batches. In some worlds, brokers keep the offsets of a group without
    members for a shorter time than a pause; these worlds have no stop, because the group would lose its offsets.
    """
    rng = random.Random(f"halts {scenario.seed}")
    is_calm = rng.random() < 0.5
    made = replace(
        scenario,
        queries=rng.choice((1, 2, 3)),
        # Some batches take up to 8 s.
        share_of_long=rng.choice((scenario.share_of_long, 1.0)),
        batches=0,
        selects="subscribe",
        others=0 if is_calm else scenario.others,
        listens=rng.random() < 0.5,
        retention=rng.choice((math.inf, 15.0)) if is_calm else math.inf,
    )
    least = 0.5 if made.retention < math.inf else 0.0
    halts = [
        Fault(rng.uniform(1.0, 0.7 * made.seconds), "halt", rng.uniform(least, 1.0), rng.random())
        for _ in range(rng.choice((1, 1, 2, 4)))
    ]
    faults = [] if is_calm else [one for one in scenario.faults if "other" not in one.kind or made.others]
    return replace(made, faults=tuple(sorted((*faults, *halts), key=lambda fault: fault.at)))


def _done_within(parts: Parts) -> float:
    """Return the seconds within which a halt is done if nothing else happens.

    These seconds allow for the longest batches, three triggers, and the session of static members.
    """
    return 90.0 + 3 * max(query.load.idle for query in parts.queries)


class Halts:
    """The programs that halt the group, each in a process of its own."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._world, self._cluster = parts, parts.world, parts.cluster

    def halt(self, fault: Fault) -> None:
        """Stop the group (`which` below one half) or pause it, at a place that `how` decides, and resume it later."""
        operator = self._world.process(f"operator-{len(self._parts.operators)}")
        self._parts.operators.append(operator)

        def main() -> None:
            with contextlib.suppress(Died):
                self._work(operator, stop if fault.which < 0.5 else pause, fault.how)
                operator.kill()

        operator.start(main)

    def _work(self, operator: Process, act: Callable[..., Halted], how: float) -> None:
        settings = Settings({"bootstrap.servers": self._cluster.bootstrap_servers, "request.timeout.ms": "10000"})
        found = self._until_answered(operator, lambda: act(settings, GROUP_ID, self._at(how), others_go_on=how < 0.5))
        if found is not None:
            self._world.tell(
                operator.name, f"{found.halt}, at { {str(tp): to for tp, to in found.halt.boundaries.items()} }"
            )
            stands = self._until_answered(
                operator, lambda: wait_until_halted(settings, GROUP_ID, found.halt, timeout=_done_within(self._parts))
            )
            if stands is not None:
                self._parts.halted(stands)
                self._world.sleep(how * 7 % 1 * self._parts.scenario.halted_for)
                self._parts.halted(stands)
        # Resume also after an error, because the halt may have been written.
        self._until_answered(operator, lambda: resume(settings, GROUP_ID))

    def _until_answered(self, operator: Process, call: Callable[[], Halted]) -> Halted | None:
        """Return the result of a call, repeated until the world is quiet; None: the call is refused."""
        for _ in range(20):
            try:
                return call()
            except (InvalidConfigurationError, UnknownGroupError) as error:
                self._world.tell(operator.name, f"is refused: {error}")
                return None
            except KafkaGroupError as error:
                self._world.tell(operator.name, f"fails: {type(error).__name__}: {error}")
                self._world.sleep(8.0)
        return None

    def _at(self, how: float) -> At:
        """Return the place of a halt: now, at the end, at offsets ahead of the group, or at a time."""
        place, rng = int(how * 8) % 4, self._world.random
        if place == 2:
            committed = {tp: one.offset for tp, one in self._parts.group.offsets.items() if tp[0] == TOPIC}
            return {TopicPartition(*tp): at + rng.choice((0, 3, 60, 250)) for tp, at in committed.items()} or "now"
        if place == 3:
            return AtTime(round(1000 * (BEGIN + self._world.now * rng.uniform(0.7, 1.0))))
        return "end" if place else "now"


class HaltChecks(Watch):
    """Checks that queries read no further than the halts of their group allow.

    Args:
        parts: The parts of the world.
        note: Records a problem.
        allows: Counts an allowance if its condition holds.
    """

    def __init__(self, parts: Parts, note: Callable[[str], None], allows: Callable[..., bool]) -> None:
        self._parts, self._world, self._note, self._allows = parts, parts.world, note, allows
        self._is_calm = all(one.kind == "halt" for one in parts.scenario.faults)
        # The halts that were written, including halts that brokers have lost.
        self._entries: dict[Key, Committed] = {}
        # The time at which each halt was written, by the halt's text, and the time of each process's last look.
        self._written_at: dict[str, float] = {}
        self._told_at: dict[Process | None, float] = {}
        # The planned ends of partitions, and the ends planned by triggers that did not know the newest halt.
        self._planned: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        parts.halted = self.halted
        parts.groups.watches.append(self)

    def committed(self, group: Group, entries: dict[Key, Committed]) -> None:
        if group.name == HALT.of(GROUP_ID):
            for one in entries.values():
                self._written_at.setdefault(one.metadata, self._world.now)
            self._entries.update(entries)
            self._reached = dict(self._planned)

    def fetched(self, group: Group) -> None:
        if group.name == HALT.of(GROUP_ID):
            self._told_at[self._parts.cluster.client] = self._world.now

    @property
    def _halt(self) -> Halt | None:
        """Return the current halt of the group, without entries of a deleted topic."""
        created_at = self._parts.cluster.topics[TOPIC].created_at
        found = {
            TopicPartition(*tp): (within(one.offset), one.metadata)
            for tp, one in self._entries.items()
            if one.at >= created_at
        }
        return while_it_holds(halt_of(found))

    def planned(self, process: Process, offset: StreamOffset, began: float) -> None:
        """Check the plan of a trigger."""
        halt = self._halt
        written_at = math.inf if halt is None else self._written_at[halt.to_json()]
        waited = self._world.now - began >= _LOOK and self._told_at.get(process, 0.0) < began
        for tp, span in offset.partitions.items():
            boundary = math.inf if halt is None else halt.boundaries.get(tp, 0)
            if span.end > max(span.start, boundary) and not self._allows(UNSEEN, if_=began <= written_at or waited):
                self._note(f"{process} plans {tp} from {span.start} to {span.end}: {halt}, at {boundary}")
            self._planned[tp] = max(self._planned.get(tp, 0), span.end)
            if began <= written_at or waited:
                self._reached[tp] = max(self._reached.get(tp, 0), span.end)

    def halted(self, stands: Halted) -> None:
        """Check the group's position when a program has reported it, and before the program resumes the group."""
        halt = stands.halt
        if self._halt is None or self._halt.number != halt.number:
            # Another program has resumed the group, or halted it at another place.
            return
        for one in stands.partitions if stands.is_done and self._is_calm else ():
            boundary, entry = one.boundary or 0, self._parts.group.offsets.get((one.topic, one.partition))
            offset = None if entry is None else entry.offset
            # A batch that was planned before the halt is committed too.
            end = max(boundary, self._reached.get(TopicPartition(one.topic, one.partition), 0))
            if offset != one.committed or (boundary and offset != end):
                self._note(f"{one}, and is at {offset}: {halt}, at {boundary}")
        is_written = all(self._parts.cluster.end((tp.topic, tp.partition)) >= to for tp, to in halt.boundaries.items())
        if self._is_calm and is_written and not stands.is_done:
            self._note(f"not done in time: {stands}")
        if stands.is_done and halt.kind is HaltKind.STOP and self._is_calm and self._parts.group.emptied_at == math.inf:
            self._note(f"the group has members: {halt}")
