"""`kafkagroup rewind` for groups whose members run: streams of ours go back at once, other members are named."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from assignors import TopicPartition
from kafka_source.model.stream_offset import StreamOffset
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.records import produce, running, stream, to_files, written
from tests.support.rewinding import COUNT, PARTITIONS, all_committed, ends
from tests.support.waiting import wait_until, wait_until_committed


@pytest.fixture
def name(topic) -> str:
    made: str = topic("commanded", partitions=PARTITIONS, records=COUNT)
    return made


def test_a_spark_query_that_runs_reads_again(spark, kafka, name, group, groups, command, tmp_path):
    frame = stream(spark, kafka, name, kafka_group_id=group, group_members=2, startingOffsets="earliest",
                   kafka_heartbeat_interval_ms=300)  # fmt: skip
    out = tmp_path / "out"
    with running(to_files(frame, tmp_path).start()):
        last = ends(groups, name)
        wait_until_committed(groups, group, last)
        said = command.says("rewind", group, "--to", "earliest", "-t", f"{name}:0,1")
        assert f"Group {group} runs with 2 members" in said
        assert all(member.name in said for member in groups.describe(group).members)
        assert "Nothing was changed" in said
        assert groups.committed(group) == last
        moves = command.json("rewind", group, "--to", "earliest", "-t", f"{name}:0,1", "--yes")
        rewound = {TopicPartition(name, number): last[TopicPartition(name, number)] for number in (0, 1)}
        assert {(move["partition"], move["committed"], move["offset"]) for move in moves} == {
            (tp.partition, end, 0) for tp, end in rewound.items()
        }
        wait_until_committed(groups, group, last)
    times = Counter(written(out))
    assert sorted(times) == list(range(COUNT))
    assert sum(count == 2 for count in times.values()) == sum(rewound.values())
    assert max(times.values()) == 2


def test_members_of_other_clients_are_named_and_nothing_is_changed(kafka, streams, groups, group, name, command):
    runner = streams.run()
    all_committed(groups, group, name, runner)
    with closing(ConfluentConsumer(kafka.bootstrap_servers, group, name, "classic")) as other:
        wait_until(lambda: other.assigned, "partitions for the other client")
        wait_until(lambda: len(groups.describe(group).members) == 3, "all members")
        wait_until(lambda: groups.describe(group).state == "Stable", "a stable group")
        before = groups.committed(group)
        (theirs,) = (one.name for one in groups.describe(group).members if one.client_id == "rdkafka")
        ours = [one.name for one in groups.describe(group).members if one.client_id != "rdkafka"]
        for more in ((), ("--yes",)):
            said = command.says("rewind", group, "--to", "earliest", "--all-topics", *more, code=1)
            assert f"{theirs} (rdkafka) at " in said
            assert "Stop these members (1 of 3) and rewind again" in said
            assert not [one for one in ours if one in said]
            assert "Done" not in said
        assert groups.committed(group) == before


@pytest.mark.parametrize(
    ("target", "back", "follows_the_log"),
    [
        (("--to", "current"), 0, False),
        (("--shift-by", -3), 3, False),
        (("--to", "latest"), 0, True),
        # Nothing is that new, so it is the end of the log.
        (("--back", "0s"), 0, True),
    ],
)
def test_a_target_counts_from_what_the_members_commit_before_they_wait(
    kafka, streams, groups, group, name, command, target, back, follows_the_log
):
    with closing(streams.planner()) as busy:
        end = busy.next(StreamOffset(), limited=True)
        busy.tasks(StreamOffset(), end)
        batch = ends(groups, name)
        wait_until_committed(groups, group, dict.fromkeys(batch, 0))
        with ThreadPoolExecutor(1) as pool:
            rewinding = pool.submit(lambda: command.json("rewind", group, *target, "--all-topics", "--yes"))
            wait_until(
                lambda: rewinding.done() or groups.describe(group).state == "PreparingRebalance", "the command to wait"
            )
            if follows_the_log:
                produce(kafka.bootstrap_servers, name, COUNT, first=COUNT)
            while not rewinding.done():
                # It commits its batch, and rejoins as soon as a heartbeat has told it to.
                planned = busy.next(end, limited=True)
                end = planned if follows_the_log else end
            moves = rewinding.result()
        last = ends(groups, name)
        assert (last == batch) is not follows_the_log
        expected = {tp: end - back for tp, end in last.items()}
        assert {TopicPartition(move["topic"], move["partition"]): move["offset"] for move in moves} == expected
        assert all(move["asked"] == move["offset"] for move in moves)
        assert groups.committed(group) == expected
        if not follows_the_log:
            assert {TopicPartition(move["topic"], move["partition"]): move["committed"] for move in moves} == batch
