"""Committed offsets name their topic: what was committed for a deleted topic counts nowhere in the next one."""

from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.group.requests import commit_offsets, fetch_all_committed
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.pinned_read import pinned_ranges
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.admin.offsets_document import OffsetsDocument
from kafkagroup.embedded import EmbeddedKafka
from tests.support.queries import Pipe, query_of
from tests.support.records import Topic, create_again, produce
from tests.support.waiting import wait_until


def _query(kafka: EmbeddedKafka, name: str, group: str, **options: str) -> Query:
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": "1",
        "startingOffsets": "earliest",
        **options,
    }
    return query_of(given)


def _values(query: Query, stream: MicroBatches, start: StreamOffset, end: StreamOffset) -> list[int]:
    read = (batch for bundle in stream.tasks(start, end) for batch in read_task.read_bundle(bundle, query))
    return [int(value.as_py()) for batch in read for value in batch["value"]]


def _committed(kafka: EmbeddedKafka, group: str) -> dict[TopicPartition, int]:
    return Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(group)


def _by_driver(query: Query, sink: str) -> None:
    with closing(MicroBatches(query)) as stream:
        end = stream.next(StreamOffset(), limited=True)
        _values(query, stream, StreamOffset(), end)
        stream.next(end, limited=True)


def _by_sink(query: Query, sink: str) -> None:
    options, (source,) = query.options, query.options.subscribe or ("",)
    protocol = {"kafka_group_protocol": options.group_protocol}
    pipe = Pipe(options.bootstrap_servers, source, sink, options.group_id or "", f"{sink}-query", None, **protocol)
    with closing(pipe):
        pipe.whole_batch()


def _by_pinned(query: Query, sink: str) -> None:
    options, (source,) = query.options, query.options.subscribe or ("",)
    given = {"kafka.bootstrap.servers": options.bootstrap_servers, "subscribe": source}
    with pinned_ranges({**given, "kafka.group.id": options.group_id or ""}):
        pass


def _by_program(query: Query, sink: str, *, transactional: bool = False) -> None:
    options, (source,) = query.options, query.options.subscribe or ("",)
    settings = {"bootstrap.servers": options.bootstrap_servers, "group.id": options.group_id or ""}
    with arrow.consume(source, settings, max_wait=1) as stream:
        batches = list(stream)
        if not transactional:
            stream.commit()
            return
        with stream.transaction() as transaction:
            for batch in batches:
                transaction.write(sink, batch)


def _by_operator(query: Query, sink: str, *, of_new_group: bool) -> None:
    options, (source,) = query.options, query.options.subscribe or ("",)
    groups, offsets = Groups(options.settings), {TopicPartition(source, 0): 10}
    groups.create(options.group_id or "", offsets) if of_new_group else groups.rewind(options.group_id or "", offsets)


@pytest.mark.parametrize(
    ("commit", "run", "protocol"),
    [
        ("batch", _by_driver, "classic"),
        ("batch", _by_driver, "consumer"),
        ("task", _by_driver, "classic"),
        ("sink", _by_sink, "classic"),
        ("sink", _by_sink, "consumer"),
        ("batch", _by_pinned, "classic"),
        ("batch", _by_program, "classic"),
        ("batch", partial(_by_program, transactional=True), "classic"),
        ("batch", partial(_by_operator, of_new_group=False), "classic"),
        ("batch", partial(_by_operator, of_new_group=True), "classic"),
    ],
)
def test_every_commit_names_its_topic(
    kafka: EmbeddedKafka, topic: Topic, group: str, commit: str, run: Callable[[Query, str], None], protocol: str
) -> None:
    name, sink = topic("commits-all", partitions=1, records=10), topic("commits-all-out", partitions=1)
    run(_query(kafka, name, group, commit=commit, kafka_group_protocol=protocol), sink)
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    committed = wait_until(lambda: client.run(fetch_all_committed(client, group, Deadline(30))), "the commit")
    (entry,) = committed.values()
    assert entry.offset == 10
    note = OffsetNote.parse(entry.metadata)
    described = client.run(client.metadata([name])).topics[name]
    assert (note.topic, note.cluster) == (described.id_text, client.cluster_id)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_what_a_late_commit_says_of_the_deleted_topic_skips_nothing(
    kafka: EmbeddedKafka, topic: Topic, group: str, start: str
) -> None:
    name = topic("commits-late", partitions=1, records=1000)
    tp = TopicPartition(name, 0)
    query = _query(kafka, name, group)
    with closing(MicroBatches(query)) as stream:
        first = stream.next(StreamOffset(), limited=True)
        assert len(_values(query, stream, StreamOffset(), first)) == 1000
        produce(kafka.bootstrap_servers, name, 500)
        second = stream.next(first, limited=True)
        assert len(_values(query, stream, first, second)) == 500
        kafka.delete_topic(name)
        create_again(kafka, name, 1)
        produce(kafka.bootstrap_servers, name, 3000)
        # The query has not noticed yet, and its coordinator takes the offset by name.
        stream.next(second, limited=True)
        wait_until(lambda: _committed(kafka, group) == {tp: 1500}, "the late commit")
    # A new query begins with the new topic, wherever a first start would begin, and others see where.
    query = _query(kafka, name, group, startingOffsets=start)
    with closing(MicroBatches(query)) as stream:
        end = stream.next(StreamOffset(), limited=True)
        wait_until(lambda: _committed(kafka, group) == {tp: 0}, "the first offset of the new topic")
        assert len(_values(query, stream, StreamOffset(), end)) == 3000
        stream.next(end, limited=True)
    wait_until(lambda: _committed(kafka, group) == {tp: 3000}, "the end of the new topic")


@pytest.mark.parametrize("moved", ["mirrored", "imported"])
def test_mirrored_and_imported_groups_keep_their_places(
    kafka: EmbeddedKafka, topic: Topic, group: str, moved: str
) -> None:
    name = topic("commits-moved", partitions=1)
    tp, settings = TopicPartition(name, 0), Settings({"bootstrap.servers": kafka.bootstrap_servers})
    produce(kafka.bootstrap_servers, name, 10)
    cluster = "elsewhere" if moved == "mirrored" else cached_client(settings).cluster_id
    entry = CommitOffset(7, metadata=OffsetNote("a stream", None, "another topic", cluster).metadata)
    if moved == "mirrored":
        nobody = SlotCredentials.without_membership(group)
        cached_client(settings).run(commit_offsets(cached_client(settings), nobody, {tp: entry}, Deadline(30)))
    else:
        Groups(settings).import_offsets(OffsetsDocument(group, None, {tp: entry}))
    query = _query(kafka, name, group)
    with closing(MicroBatches(query)) as stream:
        assert _values(query, stream, StreamOffset(), stream.next(StreamOffset(), limited=True)) == [7, 8, 9]


_OPTIONS = {"failOnDataLoss": "false", "data_loss_patience_ms": "1000", "group_members": "1"}


@pytest.fixture
def topics(topic: Topic) -> tuple[str, str]:
    source, sink = topic("commits-in", partitions=2, records=200), topic("commits-out")
    return source, sink


def _to_the_end(query: Pipe) -> list[int]:
    read = []
    while query.whole_batch() >= 0:
        read += query.read
    return read


def test_a_query_that_was_stopped_writes_nothing_again_of_a_topic_created_again(
    kafka: EmbeddedKafka, topics: tuple[str, str], group: str
) -> None:
    with closing(Pipe(kafka.bootstrap_servers, *topics, group, f"{group}-a", None, **_OPTIONS)) as a:
        assert len(_to_the_end(a)) == 200
    kafka.delete_topic(topics[0])
    create_again(kafka, topics[0], 2)
    produce(kafka.bootstrap_servers, topics[0], 400)
    with closing(Pipe(kafka.bootstrap_servers, *topics, group, f"{group}-b", None, **_OPTIONS)) as b:
        assert len(_to_the_end(b)) == 400
    with closing(a.restarted(**_OPTIONS)) as again:
        assert _to_the_end(again) == []
