"""How soon a group drains a skewed backlog, by strategy: a simulation of groups, without a broker.

    ./run bench balance [--seeds 1000] [--save FILE.svg]

Each seed is a group of 8 members and 4 topics with 50 partitions. Speeds are between 1,000 and 4,000 records/s, equally
likely on a logarithmic scale. The backlog takes all members together 20 minutes, and is spread over the partitions by
Zipf's law. In one half of the figures no records arrive; in the other half records arrive at 40 % of the members'
speed, spread by the same law in another order. A member drains its backlog at its speed less the arriving records, and
the group is done when its last member is done. Times are relative: 1.0 is the time of work that is divided at will.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from assignors import Assignment, Assignor, ClusterMetadata, Measures, PartitionWork, Subscription, TopicPartition, load
from assignors.lag_balanced import AVERAGED_BATCHES, BATCH_NOISE
from benchmarks._command import begin, parser_of
from kafka_source.group.classic.balance import RebalanceBackoff

TOPICS = tuple(f"topic-{letter}" for letter in "abcd")
PARTITIONS = 50
MEMBERS = 8
SLOWEST, FASTEST = 1_000.0, 4_000.0
BACKLOG_SECONDS = 1200.0
ARRIVING = (0.0, 0.4)
ERROR = BATCH_NOISE / math.sqrt(AVERAGED_BATCHES)
"""The relative standard deviation of the measures of members and the leader."""

LOOKS = 12
"""The number of the leader's checks in an hour without changes: one in each interval between two rebalances."""

LAST_SHOWN = 6.0
"""The longest time to drain in the plot."""

STRATEGIES = ("range", "roundrobin", "sticky", "lag-balanced")


@dataclass(frozen=True, slots=True)
class Group:
    """The exact state of a group, which no member knows."""

    lags: Mapping[TopicPartition, int]
    rates: Mapping[TopicPartition, float]
    speeds: Mapping[str, float]

    def ideal(self) -> float:
        """The time to drain if work could be divided at will."""
        return sum(self.lags.values()) / (sum(self.speeds.values()) - sum(self.rates.values()))

    def seconds(self, answer: Mapping[str, Assignment]) -> float:
        """The time to drain; infinite if a member gets more than it can read."""
        longest = 0.0
        for member, given in answer.items():
            lag = sum(self.lags[tp] for tp in given.partitions)
            spare = self.speeds[member] - sum(self.rates[tp] for tp in given.partitions)
            longest = max(longest, 0.0 if lag == 0 else lag / spare if spare > 0 else math.inf)
        return longest

    def cluster(self, chance: random.Random | None = None) -> ClusterMetadata:
        """The leader's metadata: exact lags, and rates with an error."""
        error = 0.0 if chance is None else ERROR
        gauss = random.Random(0).gauss if chance is None else chance.gauss
        return ClusterMetadata(
            dict.fromkeys(TOPICS, PARTITIONS),
            work={tp: PartitionWork(lag, max(0.0, self.rates[tp] * gauss(1, error))) for tp, lag in self.lags.items()},
        )


def zipf(chance: random.Random, total: float, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
    weights = [1 / rank for rank in range(1, len(partitions) + 1)]
    chance.shuffle(weights)
    return {tp: total * weight / sum(weights) for tp, weight in zip(partitions, weights, strict=True)}


def make(seed: int, arriving: float = ARRIVING[-1]) -> Group:
    chance = random.Random(seed)
    partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    speeds = {f"member-{n}": SLOWEST * (FASTEST / SLOWEST) ** chance.random() for n in range(MEMBERS)}
    together = sum(speeds.values())
    lags = zipf(chance, together * BACKLOG_SECONDS, partitions)
    return Group({tp: int(lag) for tp, lag in lags.items()}, zipf(chance, together * arriving, partitions), speeds)


class Members:
    """The assignors of a group's members, over several rebalances."""

    def __init__(self, strategy: str) -> None:
        self._strategy = strategy
        self._own: dict[str, Assignor] = {}
        self._generation = 0
        self.group: dict[str, Subscription] = {}
        self.answer: Mapping[str, Assignment] = {}

    def rebalance(self, group: Group, chance: random.Random | None = None) -> int:
        """Rebalance; return the number of partitions that the remaining members have lost."""
        self._own = {member: self._own.get(member) or load(self._strategy) for member in group.speeds}
        for member, own in self._own.items():
            error = 0.0 if chance is None else ERROR
            measured = group.speeds[member] * (1 if chance is None else max(0.1, chance.gauss(1, error)))
            own.on_measures(Measures(measured))
        self.group = {
            member: Subscription(TOPICS, own.subscription_user_data(TOPICS)) for member, own in self._own.items()
        }
        before, self.answer = self.answer, self.leader.assign(group.cluster(chance), self.group)
        self._generation += 1
        for member, own in self._own.items():
            own.on_assignment(self.answer[member], self._generation)
        return sum(
            len(set(given.partitions) - set(self.answer[member].partitions))
            for member, given in before.items()
            if member in self.answer
        )

    @property
    def leader(self) -> Assignor:
        return next(iter(self._own.values()))


def replayed(group: Group, chance: random.Random) -> Group:
    """Return the lags after a rewind of one topic: its partitions have the whole lag."""
    topic = chance.choice(TOPICS)
    total = sum(group.lags.values())
    partitions = [tp for tp in group.lags if tp.topic == topic]
    lags = zipf(chance, total, partitions)
    return replace(group, lags={tp: int(lags.get(tp, 0)) for tp in group.lags})


EVENTS: Mapping[str, Callable[[Group, random.Random], Group]] = {
    "nothing happens": lambda group, _: group,
    "a member leaves": lambda group, _: replace(
        group, speeds={name: speed for name, speed in group.speeds.items() if name != min(group.speeds)}
    ),
    "a member joins": lambda group, _: replace(
        group, speeds={**group.speeds, "newcomer": math.sqrt(SLOWEST * FASTEST)}
    ),
    "a topic is rewound": replayed,
}


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def show(values: Sequence[float]) -> str:
    cells = [percentile(values, part) for part in (0.5, 0.95)]
    never = sum(math.isinf(value) for value in values)
    told = ["never" if math.isinf(cell) else f"{cell:.2f}" for cell in cells]
    return f"{told[0]} | {told[1]} | {100 * never / len(values):.1f} %"


def drain(seeds: int) -> dict[str, list[float]]:
    """Print the times to drain; return the times of groups without arriving records."""
    print("\n| arriving | strategy | time to drain, median | 95 % | never drained |\n| --- | --- | --- | --- | --- |")
    found: dict[tuple[float, str], list[float]] = {}
    for arriving, strategy in itertools.product(ARRIVING, STRATEGIES):
        ratios = found[arriving, strategy] = []
        for seed in range(seeds):
            group = make(seed, arriving)
            members = Members(strategy)
            members.rebalance(group)
            ratios.append(group.seconds(members.answer) / group.ideal())
        print(f"| {100 * arriving:.0f} % | {strategy} | {show(ratios)} |", flush=True)
    return {strategy: found[ARRIVING[0], strategy] for strategy in STRATEGIES}


def moves(seeds: int) -> None:
    print("\n| event | strategy | moves, mean | most | without a move | time to drain, median | 95 % | never drained |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for event, strategy in itertools.product(EVENTS, ("sticky", "lag-balanced")):
        counts, ratios = [], []
        for seed in range(seeds):
            group, chance = make(seed), random.Random(seed)
            members = Members(strategy)
            members.rebalance(group, chance)
            changed = EVENTS[event](group, chance)
            counts.append(members.rebalance(changed, chance))
            ratios.append(changed.seconds(members.answer) / changed.ideal())
        still = 100 * counts.count(0) / seeds
        print(
            f"| {event} | {strategy} | {mean(counts):.1f} | {max(counts)} | {still:.1f} % | {show(ratios)} |",
            flush=True,
        )


def flapping(seeds: int) -> None:
    """Print the leader's requests for rebalances, and the moves, in an hour without changes, with noisy measures."""
    worth = asked = moved = 0
    for seed in range(seeds):
        group, chance = make(seed), random.Random(seed)
        members = Members("lag-balanced")
        members.rebalance(group, chance)
        interval = members.leader.rebalance_interval() or 0.0
        backoff = RebalanceBackoff(interval, since=0.0)
        for look in range(1, LOOKS + 1):
            at = look * interval
            reason = members.leader.should_rebalance(group.cluster(chance), members.group, members.answer)
            worth += reason is not None
            backoff = backoff.after_look(at, worth=reason is not None)
            if backoff.asked:
                asked += 1
                count = members.rebalance(group, chance)
                moved += count
                backoff = backoff.after_rebalance(at, moved=count > 0)
    error = 100 * ERROR
    print(f"\nan hour without changes, {seeds} groups, {LOOKS} looks each, errors of {error:.0f} %:")
    print(f"worth a rebalance in {worth} looks, {asked} rebalances asked for, {moved} partitions moved")


def plot(found: Mapping[str, Sequence[float]], file: Path) -> None:
    """Draw the part of the groups that has drained, over time. Needs matplotlib (the extra `notebooks`)."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "balance"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for strategy, ratios in found.items():
        step = max(1, len(ratios) // 100)
        times = sorted(min(ratio, LAST_SHOWN) for ratio in ratios)[::step]
        shares = [100 * step * (place + 1) / len(ratios) for place in range(len(times))]
        # With topics of equal size, roundrobin and sticky give each member equally many partitions of each topic.
        style = "--" if strategy == "roundrobin" else "-"
        axes.step([times[0], *times, LAST_SHOWN], [0, *shares, 100], style, where="post", label=strategy)
    axes.set(xlabel="time to drain / shortest possible time", ylabel="groups that have drained, %")
    axes.set(xlim=(0.9, LAST_SHOWN), ylim=(0, 101))
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = parser_of(__doc__, saves=True)
    parser.add_argument("--seeds", type=int, default=1000)
    given = begin(parser)
    started = time.monotonic()
    found = drain(given.seeds)
    moves(given.seeds)
    flapping(given.seeds)
    if given.save:
        plot(found, given.save)
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
