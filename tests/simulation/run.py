"""Run a scenario: its world runs with faults, becomes quiet, and is checked."""

import functools
import logging
from dataclasses import replace

from tests.simulation.checks import Checks, Verdict
from tests.simulation.clients.batches import BatchApplication
from tests.simulation.faults import Faults
from tests.simulation.parts import TOPIC, Parts
from tests.simulation.scenario import Fault, Scenario, scenario_of
from tests.simulation.world import Stuck

# Virtual seconds: the longest time in which the world becomes quiet after the faults, and the time for which attempts
# that Spark does not wait for may then continue.
_QUIET_WITHIN = 400.0
_LATE_ATTEMPTS = 10.0
# The time that a keeper of slots may need, without faults, to notice that its driver has ended.
_KEEPERS_END = 60.0


class Run:
    """A run of a scenario.

    Args:
        scenario: The scenario to run.
        quiet_within: The virtual seconds in which the world must become quiet.
        to_first_problem: Whether the run ends with the first problem.
    """

    def __init__(
        self, scenario: Scenario, quiet_within: float = _QUIET_WITHIN, *, to_first_problem: bool = False
    ) -> None:
        self.scenario, self.verdict, self._quiet_within = scenario, Verdict(scenario), quiet_within
        self.parts = Parts(scenario)
        self.world, self.cluster = self.parts.world, self.parts.cluster
        self.checks = Checks(self.parts, self.verdict)
        self._faults = Faults(self.parts)
        self._produces, self._to_first_problem = True, to_first_problem

    def run(self) -> Verdict:
        world, verdict = self.world, self.verdict
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with world.installed():
                self._go()
        except Stuck as error:
            verdict.problems.append(str(error))
        finally:
            logging.disable(before)
        verdict.story = world.story
        verdict.steps, verdict.seconds = world.steps, world.now
        verdict.requests, verdict.errors = self.cluster.requests, self.cluster.errors
        verdict.records = sum(one.end for one in self.cluster.topics[TOPIC].partitions)
        for query in self.parts.queries:
            for at, failure in query.errors:
                verdict.failures[type(failure).__name__] += 1
                if not self.checks.explains(failure, at, of_batch=isinstance(query, BatchApplication)):
                    verdict.problems.append(f"{query.name} ended at {at:.3f} with {type(failure).__name__}: {failure}")
        return verdict

    def _go(self) -> None:
        world = self.world
        for number, query in enumerate(self.parts.queries):
            world.after(world.random.uniform(0, 20.0) * number, query.start)
        for other in self.parts.others:
            world.after(world.random.uniform(0, 20.0), other.start)
        world.after(0.1, self._produce)
        for fault in self.scenario.faults:
            world.after(fault.at, functools.partial(self._happen, fault))
        world.run(self.scenario.seconds, done=self._is_over)
        if not self._is_over():
            self._heal()
        world.run(self.scenario.seconds + self._quiet_within, done=lambda: self._is_over() or self.checks.is_done())
        if self._is_over():
            self.checks.look_at_story()
            return
        self._stop_batches()
        # A late commit may have set the group back meanwhile.
        world.run(world.now + self._quiet_within, done=self.checks.is_done)
        if self.scenario.runs_tasks:
            for worker in self._faults.held:
                world.after(world.random.uniform(0, _LATE_ATTEMPTS / 3), worker.thaw)
            world.run(world.now + _LATE_ATTEMPTS)
            world.run(world.now + _LATE_ATTEMPTS, done=lambda: not self.checks.is_committing)
        self.checks.look_at_end()

    def _is_over(self) -> bool:
        return self._to_first_problem and (self.world.broke or bool(self.verdict.problems))

    def _stop_batches(self) -> None:
        """End the applications that read batches: the keepers of their slots notice the end, and leave the group."""
        for one in self.parts.batches:
            one.stop()
        ends = self.world.now + _KEEPERS_END
        self.world.run(ends, done=lambda: not any(one.processes() for one in self.parts.batches))
        for one in self.parts.batches:
            left = (keeper for keeper in one.keepers() if not keeper.driver.alive)
            self.verdict.problems.extend(f"{keeper} goes on without its driver" for keeper in left)

    def _produce(self) -> None:
        if self._produces:
            rng = self.world.random
            partitions = self.cluster.topics[TOPIC].partitions
            number = rng.choice(range(len(partitions)))
            if self.cluster.brokers[partitions[number].leader].up:
                self.cluster.produce(TOPIC, number, rng.choice((1, 5, 50)))
            self.world.after(rng.uniform(0.05, 0.8), self._produce)

    def _happen(self, fault: Fault) -> None:
        self.verdict.faults[fault.kind] += 1
        self._faults.happen(fault)

    def _heal(self) -> None:
        world = self.world
        world.tell("world", "becomes quiet")
        self._produces = False
        for broker in self.cluster.brokers.values():
            broker.slow = 0.0
            if not broker.up:
                self.cluster.start_broker(broker.node)
            if broker.frozen:
                broker.thaw()
        for query in self.parts.queries:
            query.start()


def run(seed: int, quiet_within: float = _QUIET_WITHIN) -> Verdict:
    """Run the scenario of a seed; its world must become quiet within this number of virtual seconds."""
    return Run(scenario_of(seed), quiet_within).run()


def shortened(scenario: Scenario) -> Scenario:
    """Return a scenario that fails, without the faults that are not needed for the failure."""
    faults = scenario.faults
    for fault in scenario.faults:
        fewer = tuple(one for one in faults if one is not fault)
        if Run(replace(scenario, faults=fewer)).run().problems:
            faults = fewer
    return replace(scenario, faults=faults)
