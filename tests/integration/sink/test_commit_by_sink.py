"""`commit=sink`: the source group's offsets move with the sink's decision, whoever else is in the group."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from pyspark.errors import StreamingQueryException

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.handoff import BatchOfRun, DecisionRecord, Entry, Handoff, collect, publish, record_of
from kafka_source.commits.rights import Renewal, Right
from kafka_source.commits.side_groups import BEYOND_ALL_LOGS, READ_BY, beyond, private_groups
from kafka_source.commits.source_offsets import offsets_of_sources, renewed_offsets
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, FencedError, InvalidConfigurationError
from kafka_source.group.requests import commit_offsets, fetch_all_committed, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.model.commits import RENEW_SECONDS, CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.transactions.offset_transaction import add_offsets, commit_in
from kafka_source.transactions.open_transaction import end, initialise
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka, Security, run_java
from tests.support.queries import Job, Pipe, query_of
from tests.support.records import CommittedReader, create_again, produce, run_to_end, stream, to_topic
from tests.support.two_phase import visible
from tests.support.waiting import wait_until, wait_until_committed

PARTITIONS = 4
COUNT = 200
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def topics(topic):
    source, sink = topic("by-sink-in", partitions=PARTITIONS, records=COUNT), topic("by-sink-out")
    return source, sink


@pytest.fixture
def pipe(kafka, topics, group, opened):
    def make(name="a", **options):
        # No leader of this broker is away for seconds.
        given = {"data.loss.patience.ms": "500", **options}
        made = Pipe(kafka.bootstrap_servers, topics[0], topics[1], group, f"{group}-{name}", **given)
        return opened.enter_context(closing(made))

    return make


@pytest.fixture
def reader(kafka, topics):
    with CommittedReader(kafka.bootstrap_servers, topics[1]) as watching:
        yield watching


def committed(kafka, group):
    return Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(group)


def ends(kafka, topics):
    client = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    rows = client.lag("nobody", tuple(TopicPartition(topics[0], n) for n in range(PARTITIONS)))
    return {TopicPartition(row.topic, row.partition): row.end for row in rows}


def to_the_end(*queries):
    """Until nobody finds anything new."""
    wait_until(lambda: [query.whole_batch() for query in queries] == [-1] * len(queries), "everything to be read")


def check(kafka, topics, reader, count=COUNT):
    expected = sorted(str(n).encode() for n in range(count))
    assert visible(kafka.bootstrap_servers, topics[1], count) == expected
    reader.wait_for(count)
    assert reader.values == expected
    reader.check_order()


@BOTH_PROTOCOLS
def test_offsets_move_with_the_decision_and_not_before(kafka, topics, group, pipe, reader, protocol):
    query = pipe(maxOffsetsPerTrigger=COUNT // 2, kafka_group_protocol=protocol)
    query.batch()
    assert set(committed(kafka, group).values()) == {0}
    query.decide()
    half = sum(committed(kafka, group).values())
    assert half == len(visible(kafka.bootstrap_servers, topics[1], half)) < COUNT
    to_the_end(query)
    assert committed(kafka, group) == ends(kafka, topics)
    check(kafka, topics, reader)
    # Other tools than ours take the groups that keep the sink's state for consumers.
    asked = ["--bootstrap-server", kafka.bootstrap_servers, "--describe"]
    for private in (f"{query.name}-ledger", f"{query.name}-finished", f"{group}-read-by-{query.name}"):
        asked += ["--group", private]
    told = run_java(GROUP_TOOL, *asked).stdout
    lags = [int(lag) for lag in re.findall(r"^\S+ +\S+ +\d+ +\d+ +\d+ +(-?\d+) ", told, flags=re.MULTILINE)]
    assert len(lags) >= 3, told
    assert max(lags) <= 0, told
    # The next member notices by the leader's epoch if the log has lost records.
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    found = client.run(fetch_all_committed(client, group, Deadline(30)))
    assert {entry.leader_epoch for entry in found.values()} == {0}


def test_each_side_group_is_private_and_beyond_all_logs(kafka, topics, group):
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    client, groups, driver = cached_client(settings), Groups(settings), uuid4().hex
    before = {one.group for one in groups.list(private=True)}
    with closing(Pipe(kafka.bootstrap_servers, topics[0], topics[1], group, str(uuid4()))) as query:
        query.whole_batch()
        (tp, end), *_ = committed(kafka, group).items()
        member = query.stream._owner.credentials(0)
        assert member is not None
        client.run(Right(driver).publish(client, group, {tp: end}, {tp: member}, Deadline(30)))
        renewal = Renewal(group, driver, {tp: (end, end)}, None, {})
        client.run(renewal._ask(client, member.generation, Deadline(30)))
        assert client.run(
            renewal.wait(client, FencedError("", code=ErrorCode.ILLEGAL_GENERATION), frozenset(), Deadline(30))
        )
    assert client.run(Right(driver).is_renewal_asked(client, group, [tp], member.generation, Deadline(30)))
    made = {one.group for one in groups.list(private=True)} - before - {group}
    suffixes = ("-ledger", "-finished", f"-read-by-{query.name}", f"-rejoined-{driver}", f"-rejoined-{driver}-asked")
    assert all(any(name.endswith(suffix) for name in made) for suffix in suffixes), made
    assert private_groups(made) == made
    for name in made:
        assert min(committed(kafka, name).values()) > BEYOND_ALL_LOGS, name


def test_a_stopped_query_follows_a_rewind_from_which_a_sink_has_read_on(kafka, topics, group, pipe):
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    stopped = Job(kafka, group, subscribe=topics[0])
    assert len(stopped.run()) == COUNT
    wait_until_committed(groups, group, COUNT)
    groups.rewind(group, dict.fromkeys(groups.committed(group), 0))
    query = pipe(maxOffsetsPerTrigger=COUNT // 2)
    assert query.whole_batch() >= 0
    query.close()
    assert 0 < len(query.read) < COUNT
    assert sorted(query.read + stopped.run()) == list(range(COUNT))


@pytest.mark.parametrize("is_rewound", [False, True])
def test_a_sink_with_new_credentials_undoes_no_rewind(kafka, topics, group, pipe, is_rewound):
    query = pipe(maxOffsetsPerTrigger=COUNT // 2)
    query.whole_batch()
    query.batch()
    member = query.stream._owner.credentials(0)
    # The members leave, as if the group had removed those of a suspended driver.
    query.close()
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    wait_until(lambda: groups.describe(group).members == (), "the members to leave")
    places = sorted(committed(kafka, group))
    if is_rewound:
        groups.rewind(group, dict.fromkeys(places, 0))
    owner = replace(member, generation=member.generation + 2, member_id="later")
    client = cached_client(query.settings)
    client.run(
        Right(member.right).publish(client, group, query.offsets[-1].ends, dict.fromkeys(places, owner), Deadline(30))
    )
    batch, refusal = BatchOfRun(query.name, query.run, 1), FencedError("", code=ErrorCode.ILLEGAL_GENERATION)
    renewed = renewed_offsets(client, group, batch, Deadline(30), refusal, frozenset())
    if is_rewound:
        with pytest.raises(FencedError, match="a rewind has changed the offsets"):
            client.run(renewed)
    else:
        assert {one.member.member_id for one in client.run(renewed)} >= {"later"}


@BOTH_PROTOCOLS
def test_f20_two_queries_of_a_group_read_every_record_once_between_them(kafka, topics, group, pipe, reader, protocol):
    first = pipe(maxOffsetsPerTrigger=COUNT // 4, kafka_group_protocol=protocol)
    first.batch()
    second = pipe("b", maxOffsetsPerTrigger=COUNT // 4, kafka_group_protocol=protocol)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.batch)
        first.decide()  # still a member of the generation that ends
        wait_until(lambda: (first.whole_batch(), joining.done())[1], "both to be members", 120)
        if joining.result(60) >= 0:
            second.decide()
    to_the_end(first, second)
    assert committed(kafka, group) == ends(kafka, topics)
    check(kafka, topics, reader)


def test_f21_a_query_whose_instance_id_another_has_taken_decides_nothing(kafka, topics, group, pipe, reader):
    first = pipe("a", kafka_group_instance_id=f"{group}-same")
    first.batch()
    second = pipe("b", kafka_group_instance_id=f"{group}-same")
    second.batch()
    with pytest.raises(FencedError, match=r"FENCED_INSTANCE_ID.*give each query its own"):
        first.decide()
    first.abort()
    assert set(committed(kafka, group).values()) == {0}
    second.decide()
    check(kafka, topics, reader)


def test_f22_a_rebalance_before_the_transaction_ends_does_not_stop_it_and_the_next_owner_waits(
    kafka, topics, group, pipe
):
    first = pipe()
    first.batch()
    client = cached_client(first.settings)
    transaction = client.run(initialise(client, f"{group}-f22", 30_000, Deadline(30)))
    (source,) = first.sources().offsets
    client.run(add_offsets(client, transaction, source, Deadline(30)))
    first.close()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.subscribe([topics[0]])
    wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1], "the other member to own the partitions")
    found, waits = {}, threading.Event()

    def next_owner():
        work = fetch_committed(client, group, source.offsets, Deadline(60))
        waits.set()
        found.update(client.run(work))

    thread = threading.Thread(target=next_owner)
    thread.start()
    waits.wait()
    thread.join(2)
    assert thread.is_alive()  # the offsets are not stable yet
    client.run(end(client, transaction, commit=True, deadline=Deadline(30)))
    thread.join(60)
    consumer.close()
    assert found == ends(kafka, topics)
    first.abort()


def test_a_sink_whose_source_tells_nothing_says_so(kafka, topics, pipe):
    query = pipe()
    query.batch()
    query.group = "another"
    with pytest.raises(InvalidConfigurationError, match="commit=sink"):
        query.decide()
    query.abort()
    assert visible(kafka.bootstrap_servers, topics[1]) == []


def test_a_sink_whose_source_is_gone_with_its_topic_asks_for_a_restart(kafka, topics, group, pipe):
    query = pipe()
    query.whole_batch()
    produce(kafka.bootstrap_servers, topics[0], 1, first=COUNT)
    query.batch()
    query.close()
    kafka.delete_topic(topics[0])
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    wait_until(lambda: not Groups(settings).describe(group).members, "the end of the source's members")
    with pytest.raises(FencedError, match=r"its topics were deleted.* Restart the query"):
        wait_until(lambda: not query.sources(), "the brokers to forget the ranges of the deleted topic")
    query.abort()


def replace_topic(kafka, name):
    """Delete a topic and create it again, with records that the old one did not have."""
    kafka.delete_topic(name)
    create_again(kafka, name, PARTITIONS)
    produce(kafka.bootstrap_servers, name, 30, first=COUNT)


@pytest.mark.parametrize("before", ["its tasks run", "its decision"])
def test_a_topic_that_is_created_again_during_a_batch_is_read_from_its_start(kafka, topics, group, pipe, before):
    query = pipe(failOnDataLoss="false")
    if before == "its tasks run":
        query.offsets.append(query.stream.next(query.offsets[-1], limited=True))
        replace_topic(kafka, topics[0])
        query.replay()
    else:
        query.batch()
        replace_topic(kafka, topics[0])
    of_old_topic = [str(number).encode() for number in query.read if number < COUNT]
    query.decide()
    to_the_end(query)
    expected = sorted([*of_old_topic, *(str(n).encode() for n in range(COUNT, COUNT + 30))])
    assert visible(kafka.bootstrap_servers, topics[1], len(expected)) == expected
    assert committed(kafka, group) == ends(kafka, topics)
    query.close()
    again = query.restarted(failOnDataLoss="false")
    again.replay()
    again.decide()
    to_the_end(again)
    assert visible(kafka.bootstrap_servers, topics[1], len(expected)) == expected


def test_a_batch_of_whose_source_a_part_was_overwritten_is_not_decided(kafka, topics, group, pipe):
    query = pipe()
    query.batch()
    member = SlotCredentials(group, 1, "another", None)
    part = Handoff(member, {TopicPartition(topics[0], 0): (0, 1)}, "another")
    client = cached_client(query.settings)
    client.run(publish(client, BatchOfRun(query.name, "another-run", 0), [part], Deadline(30)))
    with pytest.raises(FencedError, match=f"reads {PARTITIONS} partitions of .* names {PARTITIONS - 1} of them"):
        query.decide()
    query.abort()
    assert visible(kafka.bootstrap_servers, topics[1]) == []
    assert set(committed(kafka, group).values()) == {0}


def publish_late(query, run, number, member="of-before", topic_id=None):
    """Publish what a task of another run or batch has read, in the place of what the query's batch reads."""
    entry = Entry(0, run, number, PARTITIONS, topic_id, 1, member, None, "of-before", "", None)
    partitions = (TopicPartition(query.reading.options.subscribe[0], n) for n in range(PARTITIONS))
    late = {tp: CommitOffset(beyond(1), metadata=json.dumps(entry)) for tp in partitions}
    no_member = SlotCredentials.without_membership(READ_BY.of(query.group, query.name))
    client = cached_client(query.settings)
    client.run(commit_offsets(client, no_member, late, Deadline(30)))


@pytest.mark.parametrize("of", ["a run that was replaced", "the batch before", "a topic that was created again"])
def test_a_task_that_publishes_late_makes_the_query_read_nothing_again(kafka, topics, group, pipe, reader, of):
    before = pipe(maxOffsetsPerTrigger=COUNT // 4)
    before.whole_batch()
    before.batch()
    before.close()
    now = before.restarted()
    now.replay()
    run = now.run if of == "the batch before" else before.run
    topic_id = "aVJo0ssOTxOMQ4bkUl_1Sw" if of == "a topic that was created again" else None
    publish_late(now, run, 0 if run is now.run else 1, topic_id=topic_id)
    with pytest.raises(FencedError, match=f"published late .* {topics[0]}"):
        now.decide()
    now.abort()
    now.close()
    with closing(now.restarted()) as again:
        again.replay()
        again.decide()
        to_the_end(again)
    check(kafka, topics, reader)
    assert committed(kafka, group) == ends(kafka, topics)


def test_a_replay_without_a_record_of_what_was_decided_stops(topics, group, pipe):
    query = pipe()
    query.batch()
    query.decide()
    query.close()
    groups, record = Groups(query.settings), f"{group}-read-by-{query.offsets[-1].stream}"
    groups.delete(record)
    again = query.restarted()
    with pytest.raises(InvalidConfigurationError, match=f"{record}.*{topics[0]}-0 from=0 .*new checkpointLocation"):
        again.replay()
    again.close()


def test_a_query_without_the_right_to_its_record_ends_at_its_start():
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {"alice": "correct-horse"}, acls=True)) as own:
        own.create_topic("orders", 1)
        own.allow("alice", "DESCRIBE", "READ", name="orders")
        own.allow("alice", "READ", resource="group", name="billing")
        login = own.java_client_config("alice", "PLAIN")
        given = {f"kafka.{name}": value for name, value in login.items()}
        given |= {"subscribe": "orders", "kafka.group.id": "billing", "startingOffsets": "earliest", "commit": "sink"}
        query = MicroBatches(query_of(given))
        with closing(query), pytest.raises(AuthenticationError, match=r"billing-read-by-\w+ .*Nothing was read.*READ"):
            query.next(StreamOffset(), limited=True)


def test_the_record_is_renewed_once_it_is_old(kafka, topics, group):
    settings, now = Settings({"bootstrap.servers": kafka.bootstrap_servers}), [0.0]
    client, partition = cached_client(settings), TopicPartition(topics[0], 1)
    record = DecisionRecord(client, group, 30, lambda: now[0])
    stream = uuid4().hex

    def entries():
        return client.run(fetch_all_committed(client, record.name(stream), Deadline(30)))

    assert record.decided(stream, "a plan", [partition]) is None
    record.keep(stream, [partition], {})
    assert record.decided(stream, "a plan", [partition]) == {}
    handoff = Handoff(SlotCredentials(group, 1, "m", None), {partition: (3, 7)}, stream, "a plan")
    ((decided),) = record_of(group, [handoff])
    client.run(commit_offsets(client, decided.member, decided.offsets, Deadline(30)))
    assert record.decided(stream, "a plan", [partition]) == {partition: (3, 7)}
    before = entries()
    Groups(settings).delete(record.name(stream))
    record.keep(stream, [partition], {})
    assert entries() == {}
    record.keep(stream, [partition], {partition.topic: "created again"})
    assert record.decided(stream, "a plan", [partition]) == {}
    now[0] += RENEW_SECONDS
    client.run(commit_offsets(client, decided.member, decided.offsets, Deadline(30)))
    record.keep(stream, [partition], {partition.topic: "created again"})
    assert entries() == before
    lacking = replace(before[partition], metadata=before[partition].metadata.replace("1]", "2]"))
    client.run(commit_offsets(client, decided.member, {partition: lacking}, Deadline(30)))
    with pytest.raises(InvalidConfigurationError, match=r"names 1 partitions .* the decision had more"):
        record.decided(stream, "a plan", [partition])


def test_what_is_lost_of_a_decided_batch_is_written_again_though_others_have_read_on(
    kafka, topics, group, pipe, monkeypatch
):
    first = pipe(maxOffsetsPerTrigger=COUNT // 2)
    first.whole_batch()
    first.batch()
    rows, client = sorted(first.read), cached_client(first.settings)
    with monkeypatch.context() as patch:
        patch.setattr(TwoPhaseCommit, "_commit_all", killed)
        with pytest.raises(ZeroDivisionError):
            first.decide()
    first.close()
    for one in first.prepared:
        # As the coordinator does when they have timed out.
        client.run(end(client, one.transaction, commit=False, deadline=Deadline(30)))
    produce(kafka.bootstrap_servers, topics[0], 40, first=COUNT)
    other = pipe("b")
    to_the_end(other)
    other.close()
    with closing(first.restarted()) as last:
        last.replay()
        assert sorted(last.read) == rows
        last.decide()
        to_the_end(last)
    assert visible(kafka.bootstrap_servers, topics[1], COUNT + 40) == sorted(str(n).encode() for n in range(COUNT + 40))
    assert committed(kafka, group) == ends(kafka, topics)


async def killed(*_):
    raise ZeroDivisionError


@pytest.mark.parametrize("metadata", ["of another program", "[" * 3000])
def test_an_offset_of_another_program_among_those_of_the_source_stops_the_batch_in_words(
    kafka, topics, group, pipe, metadata
):
    query = pipe()
    query.batch()
    foreign = {TopicPartition(topics[0], 0): CommitOffset(1, metadata=metadata)}
    nobody = SlotCredentials.without_membership(f"{group}-read-by-{query.name}")
    client = cached_client(query.settings)
    client.run(commit_offsets(client, nobody, foreign, Deadline(30)))
    with pytest.raises(InvalidConfigurationError, match=rf"{nobody.group} .* {topics[0]}-0"):
        query.decide()
    query.abort()
    assert visible(kafka.bootstrap_servers, topics[1]) == []
    assert set(committed(kafka, group).values()) == {0}


def test_offsets_that_are_larger_than_one_record_batch_are_handed_over_and_committed(kafka, topic, group):
    """As those of thousands of partitions: a coordinator refuses requests above the size of a record batch.

    Each offset has the stream's id with it, so a long one does it with fewer partitions.
    """
    partitions, stream_id = 300, "x" * 3_900
    name = topic("by-sink-many", partitions=partitions)
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    batch = BatchOfRun("query", "run", 0)
    no_member = SlotCredentials.without_membership(group)
    ranges = {TopicPartition(name, number): (0, number + 1) for number in range(partitions)}
    client.run(publish(client, batch, [Handoff(no_member, ranges, stream_id)], Deadline(60)))
    found = client.run(collect(client, group, batch, Deadline(60)))
    assert found is not None and [handoff.ranges for handoff in found.handoffs] == [ranges]
    sources = client.run(offsets_of_sources(client, group, batch, Deadline(60), wrote=True, decided=False))
    transaction = client.run(initialise(client, f"{group}-many", 30_000, Deadline(30)))
    client.run(commit_in(client, transaction, [*sources.offsets, *sources.taken], Deadline(60)))
    at = client.run(fetch_committed(client, group, ranges, Deadline(60)))
    assert at == {tp: end for tp, (_, end) in ranges.items()}


def test_nobody_is_asked_about_topics_whose_ids_the_coordinator_knows(kafka, topics, group, monkeypatch):
    def look(_, names, deadline):
        raise AssertionError(f"metadata of {names} are asked for")

    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    batch, no_member = BatchOfRun("query", "run", 0), SlotCredentials.without_membership(group)
    known = client.run(client.metadata([topics[0]], Deadline(30))).topics[topics[0]].id_text or ""
    ranges = {TopicPartition(topics[0], number): (0, 5) for number in range(PARTITIONS)}
    monkeypatch.setattr(KafkaClient, "metadata", look)
    client.run(publish(client, batch, [Handoff(no_member, ranges, "stream", "plan", {topics[0]: known})], Deadline(60)))
    sources = client.run(offsets_of_sources(client, group, batch, Deadline(60), wrote=True, decided=False))
    assert [one.offsets.keys() for one in sources.offsets] == [ranges.keys()]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_checkpoint_that_was_put_back_stops_the_query_and_loses_nothing(kafka, topics, group, pipe, kept):
    """Its next batch has the number of one that is decided: an earlier one, or the last one with other records.

    The source stops it. If the user lets the source go on, the sink does.
    """
    query = pipe(maxOffsetsPerTrigger=COUNT // 4)
    for _ in range(3):
        assert query.whole_batch() >= 0
    query.close()
    before = committed(kafka, group)
    produce(kafka.bootstrap_servers, topics[0], 50, first=COUNT)
    query.offsets = query.offsets[: kept + 1]
    for option, message in (("stop", "older than this query's own commits"), ("follow", "older than the output")):
        with closing(query.restarted(group_on_older_checkpoint=option)) as again:
            with pytest.raises(InvalidConfigurationError, match=message):
                again.whole_batch()
            again.abort()
        assert committed(kafka, group) == before
    # What the error advises: a new checkpoint continues at the group's offsets.
    to_the_end(pipe("b"))
    assert visible(kafka.bootstrap_servers, topics[1], COUNT + 50) == sorted(str(n).encode() for n in range(COUNT + 50))


@BOTH_PROTOCOLS
def test_a_batch_with_rows_of_another_source_alone_is_decided(kafka, topic, group, protocol):
    """As in a union: the source of the group has nothing to read yet."""
    source, sink = topic("by-sink-idle", partitions=2), topic("by-sink-union")
    with closing(
        Pipe(kafka.bootstrap_servers, source, sink, group, f"{group}-union", kafka_group_protocol=protocol)
    ) as query:
        assert query.batch() == -1  # it has joined the group
        query.foreign_batch([b"another"])
        query.decide()
        assert visible(kafka.bootstrap_servers, sink, 1) == [b"another"]
        produce(kafka.bootstrap_servers, source, 10)
        assert query.whole_batch() >= 0
    assert sum(committed(kafka, group).values()) == 10


def test_a_sink_that_commits_nothing_is_told_after_the_first_batch_and_gets_no_second(
    kafka, topics, group, pipe, caplog
):
    query = pipe()
    assert query.batch() == 0
    for _ in range(2):
        assert query.stream.next(query.offsets[-1], limited=True) is query.offsets[-1]
    (told,) = [r.getMessage() for r in caplog.records if "commit.group" in r.getMessage()]
    assert group in told
    # Nobody takes the group for one that has read everything.
    (seen,) = [one for one in Groups(query.settings).list(lag=True) if one.group == group]
    assert (seen.members, seen.lag, seen.uncommitted) == (2, COUNT, 0)
    produce(kafka.bootstrap_servers, topics[0], 50, first=COUNT)
    with pytest.raises(InvalidConfigurationError, match=rf"group {group}.*commit\.group={group}.*commit=batch"):
        query.batch()
    assert set(committed(kafka, group).values()) == {0}


def test_a_sink_of_files_with_commit_by_sink_in_spark(spark, kafka, topics, group, tmp_path):
    def run(**options):
        frame = stream(
            spark, kafka, topics[0], startingOffsets="earliest", kafka_group_id=group, commit="sink", **options
        )
        writer = frame.writeStream.format("noop")
        run_to_end(writer.option("checkpointLocation", str(tmp_path / str(len(options)))))

    # A run of one micro-batch ends with a warning.
    run()
    with pytest.raises(StreamingQueryException, match=rf"commit\.group={group}"):
        run(maxOffsetsPerTrigger=80)
    # Where the query has started, and no further.
    assert set(committed(kafka, group).values()) == {0}


def test_in_spark(spark, kafka, topics, group, tmp_path):
    def run(checkpoint, count):
        frame = stream(spark, kafka, topics[0], startingOffsets="earliest", kafka_group_id=group, commit="sink",
                       maxOffsetsPerTrigger=80)  # fmt: skip
        by_sink = {"transactional": "true", "transactional.id.prefix": f"{group}-{checkpoint}", "commit.group": group}
        run_to_end(to_topic(frame.select("value"), kafka, topics[1], tmp_path / checkpoint, **by_sink))
        assert committed(kafka, group) == ends(kafka, topics)
        assert visible(kafka.bootstrap_servers, topics[1], count) == sorted(str(n).encode() for n in range(count))

    run("first", COUNT)
    # As if the driver had died after the sink's commit and before Spark's own.
    last = max(int(path.name) for path in (tmp_path / "first" / "commits").glob("[0-9]*"))
    (tmp_path / "first" / "commits" / str(last)).unlink()
    (tmp_path / "first" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    produce(kafka.bootstrap_servers, topics[0], 50, first=COUNT)
    run("first", COUNT + 50)
    produce(kafka.bootstrap_servers, topics[0], 50, first=COUNT + 50)
    run("second", COUNT + 100)
