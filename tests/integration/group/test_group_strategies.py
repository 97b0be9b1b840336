"""`cooperative-sticky` in groups of our members and Java's, whoever leads; and the way there from `range`."""

import contextlib
import itertools
from contextlib import closing

import pytest
from confluent_kafka import ConsumerGroupState

from tests.apps.process import streaming_app
from tests.support.memberships import held, together
from tests.support.mixed_group import Application, JavaMember, Trickle, Watch
from tests.support.records import produce, written
from tests.support.waiting import wait_until

COOPERATIVE = "cooperative-sticky"
PARTITIONS = 8


class Group:
    """Applications of ours and Java consumers that read one topic while records are written to it."""

    def __init__(self, kafka, members, topic, folder):
        self.topic, self.size, self.readers, self._folder = topic, 0, [], folder
        self._servers, self._members = kafka.bootstrap_servers, members
        self.watch = Watch(kafka, members.group)
        self.trickle = Trickle(self._servers, topic)

    def ours(self, app, *strategies, **settings):
        made = self._members.make(self.topic, app=app, strategies=strategies, **settings)
        self.readers.append(Application(f"ours {len(self.readers)}", made, self._servers))
        return self.readers[-1]

    def java(self, *strategies, **settings):
        made = JavaMember(
            f"java {len(self.readers)}",
            self._folder,
            self._servers,
            self._members.group,
            self.topic,
            ",".join(strategies),
            **settings,
        )
        self.readers.append(made)
        return made

    def generations(self):
        """In which generations the readers are, as far as they have heard."""
        return {reader.generation() for reader in self.readers if not reader.closed}

    def settled(self, members, strategy=COOPERATIVE, after=0):
        """What the group holds once that is complete, disjoint and balanced, and all members have heard of it.

        In a generation later than `after`: a Java consumer that is closed before it has heard of a rebalance cannot
        commit what it has just read.
        """

        def look():
            for worker in (self.trickle, self.watch, *self.readers):
                worker.check()
            found = self.watch.settled(members, PARTITIONS, strategy)
            heard = {share for reader in self.readers if not reader.closed for share in reader.shares()}
            generations = self.generations()
            if found and heard == set(found.shares.values()) and len(generations) == 1 and min(generations) > after:
                return found
            return None

        found = wait_until(look, f"a whole assignment to {members} members")
        self.size = members
        return found

    @property
    def java_readers(self):
        return [reader for reader in self.readers if isinstance(reader, JavaMember)]

    @property
    def applications(self):
        return [reader for reader in self.readers if isinstance(reader, Application)]

    def check_every_record_was_read_once(self):
        """Writes no more, waits for all to be read, and counts."""
        self.trickle.close()
        wait_until(self._is_all_read, self)
        by_value: dict[int, list[str]] = {}
        for reader in self.readers:
            for value in reader.values:
                by_value.setdefault(value, []).append(reader.name)
        assert {value: readers for value, readers in by_value.items() if len(readers) > 1} == {}
        assert sorted(by_value) == list(range(self.trickle.count))

    def __repr__(self):
        """Which records nobody has read, by partition, and what each reader has; for a failure."""
        read = {value for reader in self.readers for value in reader.values}
        missing: dict[int, list[int]] = {}
        for value, (partition, offset) in self.trickle.places.items():
            if value not in read:
                missing.setdefault(partition, []).append(offset)
        ranges = {partition: (len(offsets), min(offsets), max(offsets)) for partition, offsets in missing.items()}
        readers = [(r.name, r.closed, len(r.values), r.generation(), r.shares()) for r in self.readers]
        return f"all records to be read; unread (count, first, last) by partition: {ranges}; readers: {readers}"

    def _is_all_read(self):
        for worker in (self.watch, *self.readers):
            worker.check()
        return sum(len(reader.values) for reader in self.readers) >= self.trickle.count

    def close(self):
        with contextlib.ExitStack() as stack:
            for thing in (self.watch, *self.readers, self.trickle):
                stack.callback(thing.close)


@pytest.fixture
def mixed(kafka, members, topic, tmp_path, opened):
    """A `Group`; all its members are closed at the end."""
    return opened.enter_context(closing(Group(kafka, members, topic("mixed", partitions=PARTITIONS), tmp_path)))


def change(mixed, act, members):
    """Does something to the group and lets it settle; no partition ever has two owners, and what stays never leaves.

    Returns:
        What the members had before, and what they have after.
    """
    before, mark = mixed.settled(mixed.size).shares, len(mixed.watch.seen)
    spoken = {reader: len(reader.moves()) for reader in mixed.java_readers}
    (generation,) = mixed.generations()
    act()
    after = mixed.settled(members, after=generation).shares
    stays = {member: before[member] & after[member] for member in before.keys() & after.keys()}
    for seen in mixed.watch.seen[mark:]:
        assert len(seen.given()) == len(set(seen.given())), seen
        if seen.stable:
            assert all(partitions <= seen.shares[member] for member, partitions in stays.items()), (stays, seen)
    for reader, said in spoken.items():
        if not reader.closed:
            given_up = [partitions for word, partitions in reader.moves()[said:] if word != "assigned"]
            assert not [partitions for partitions in given_up if partitions & reader.shares()[0]]
    return before, after


@pytest.mark.parametrize("leader", ["ours", pytest.param("java", marks=pytest.mark.long)])
def test_a_cooperative_group_of_ours_and_java_moves_only_what_must_move(mixed, leader):
    start = {"ours": lambda: mixed.ours("a", COOPERATIVE, slots=2), "java": lambda: mixed.java(COOPERATIVE)}
    start[leader]()
    mixed.settled({"ours": 2, "java": 1}[leader])
    if leader == "ours":
        before, after = change(mixed, start["java"], 3)
        assert all(after[member] <= before[member] for member in before)
    else:
        before, after = change(mixed, start["ours"], 3)
        assert all(after[member] <= before[member] for member in before)
    before, after = change(mixed, start["java"], 4)
    assert all(after[member] <= before[member] for member in before)
    before, after = change(mixed, lambda: mixed.ours("b", COOPERATIVE, slots=1), 5)
    assert all(after[member] <= before[member] for member in before)
    ours, second = mixed.applications
    before, after = change(mixed, second.close, 4)
    assert all(after[member] >= before[member] for member in after)
    before, after = change(mixed, mixed.java_readers[-1].close, 3)
    assert all(after[member] >= before[member] for member in after)
    assert {a.leading for a in ours.assignments} == {leader == "ours"}
    assert {a.assignor for a in ours.assignments} == {COOPERATIVE}
    mixed.check_every_record_was_read_once()


def test_a_topic_that_is_being_handed_over_is_waited_for(members, topic):
    names = topic("first", partitions=1), topic("second", partitions=1)
    before, after = (members.make(*names, app=app, slots=1, strategies=[COOPERATIVE]) for app in "ab")
    assert before.join(30).generation == 1

    def share(membership):
        while len(held(membership)) != 1:
            wait_until(membership.rebalance_needed, "the next phase")
            membership.rejoin(30)

    together(lambda: share(before), lambda: (after.join(30), share(after)))
    assert sorted(tp.topic for tp in held(before, after)) == sorted(names)
    # One generation in which nobody has the topic, one in which the new member has it: it did not leave in between.
    assert {before.assignment.generation, after.assignment.generation} == {3}


@pytest.mark.parametrize("restart", [pytest.param("leaves", marks=pytest.mark.long), "comes back"])
def test_range_becomes_cooperative_sticky_member_by_member(mixed, restart):
    leaves = restart == "leaves"

    def java(*strategies):
        return mixed.java(*strategies, instance=None if leaves else f"{mixed.topic}-java")

    def ours(app):
        return lambda *strategies: mixed.ours(app, *strategies, slots=1, leave_on_close=leaves)

    makers = [ours("a"), java, ours("b")]
    running = [make("range") for make in makers]
    mixed.settled(3, "range")
    mark = len(mixed.watch.seen)
    for number, make in enumerate(makers):
        running[number].close()
        if leaves:
            mixed.settled(2, "range" if number < 2 else COOPERATIVE)
        running[number] = make(COOPERATIVE, "range")
        mixed.settled(3, "range" if number < 2 else COOPERATIVE)
    for number, make in enumerate(makers):
        running[number].close()
        if leaves:
            mixed.settled(2)
        running[number] = make(COOPERATIVE)
        mixed.settled(3)
    for seen, following in itertools.pairwise([*mixed.watch.seen[mark:], mixed.settled(3)]):
        assert seen.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
        assert len(seen.given()) == len(set(seen.given())), seen
        if seen.stable and len(seen.given()) < PARTITIONS:
            # What changes hands is free between the two phases of a cooperative rebalance (KIP-429).
            assert seen.strategy == COOPERATIVE
            assert following != seen
    mixed.check_every_record_was_read_once()


@pytest.mark.long
def test_a_stream_hands_partitions_to_a_cooperative_java_consumer_and_takes_them_back(kafka, topic, tmp_path):
    name = topic("shared", partitions=4)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "kafka.group.id": f"{name}-group",
        "group.members": 2,
        "kafka.partition.assignment.strategy": f"{COOPERATIVE},range",
        "kafka.session.timeout.ms": 10_000,
        "kafka.heartbeat.interval.ms": 300,
    }
    out = tmp_path / "out"
    with streaming_app(tmp_path, options) as app:
        produce(kafka.bootstrap_servers, name, 200)
        wait_until(lambda: len(written(out)) == 200, "the stream to read the first records")
        with closing(JavaMember("java", tmp_path, kafka.bootstrap_servers, f"{name}-group", name, COOPERATIVE)) as java:
            wait_until(lambda: any(java.shares()), "partitions for the Java consumer")
            produce(kafka.bootstrap_servers, name, 200, first=200)
            wait_until(lambda: len(java.values) + len(written(out)) >= 400, "all records to be read by both")
            assert java.values
        produce(kafka.bootstrap_servers, name, 200, first=400)
        wait_until(lambda: len(java.values) + len(written(out)) >= 600, "the stream to have all partitions again")
        app.stop()
        assert sorted([*written(out), *java.values]) == list(range(600))
