"""A group's offsets: the note in their metadata (stream, topic, rewind), and their division into requests."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from assignors.model import TopicPartition
from kafka_source.errors import UnknownTopicError


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """One partition's committed offset, with the other fields that Kafka stores with it.

    Attributes:
        offset: The next offset to read.
        leader_epoch: The epoch of a leader whose log had all records before the offset; -1 if unknown (KIP-320).
        metadata: The application's text.
        topic_id: The id of the topic, which coordinators from 4.1 on compare; None: unknown. In a fetched offset it is
            the requested id; the id of the commit is only in the note.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: str | None = field(default=None, compare=False)

    def unfollowed_rewind(self, followed: str | None) -> str | None:
        """Return the id of the rewind whose mark the offset has, unless it is `followed`; None: there is none."""
        rewind = OffsetNote.parse(self.metadata).rewound
        return rewind if rewind and rewind != followed else None


def check_one_topic(offsets: Iterable[TopicPartition]) -> None:
    """Check that a commit without a transaction would be refused as a whole if a topic was created again.

    Raises:
        UnknownTopicError: The commit has several topics, so the coordinator could accept a part of the commit.
    """
    if len({tp.topic for tp in offsets}) > 1:
        raise UnknownTopicError.of_names_only()


RENEW_SECONDS = 3600.0
"""The time after which an unchanged offset is committed again.

Brokers keep a memberless group's offsets for `offsets.retention.minutes`, 7 days by default (1 day before Kafka 2.0).
"""

_OURS = "kafkagroup:"
_REWOUND, _TOPIC = f"{_OURS}rewound:", f"{_OURS}topic:"


@dataclass(frozen=True, slots=True)
class OffsetNote:
    """The note of one committed offset.

    Attributes:
        stream: The id of the committing stream, from its checkpoint; None: the stream has no id.
        rewound: The id of the last rewind of the partition (see `group.strategies`); None: there was none.
        topic: The id of the topic whose offset this is; None: unknown, as in commits of other clients.
        cluster: The id of the topic's cluster; None if `topic` is None.
    """

    stream: str | None = None
    rewound: str | None = None
    topic: str | None = None
    cluster: str | None = None

    @staticmethod
    def parse(metadata: str) -> "OffsetNote":
        """Return the note in an offset's metadata, without the words that a later version has added."""
        marks: dict[str, str] = {}
        others = []
        for part in metadata.split(" "):
            mark = next((mark for mark in (_REWOUND, _TOPIC) if part.startswith(mark)), None)
            if mark is not None:
                marks[mark] = part.removeprefix(mark)
            elif not part.startswith(_OURS):
                others.append(part)
        topic, _, cluster = marks.get(_TOPIC, "").partition("@")
        return OffsetNote(" ".join(others) or None, marks.get(_REWOUND), topic or None, cluster or None)

    @property
    def metadata(self) -> str:
        """Return the text that `parse` parses."""
        topic = None if None in (self.topic, self.cluster) else f"{_TOPIC}{self.topic}@{self.cluster}"
        mark = None if self.rewound is None else _REWOUND + self.rewound
        return " ".join(part for part in (self.stream, topic, mark) if part is not None)


def is_of_other_topic(entry: CommitOffset, topic_id: str | None, cluster: str | None) -> bool:
    """Return whether a committed offset's note names this cluster and another topic id.

    Return False if the note has no id, or names another cluster, from which the group may have been mirrored.
    """
    note = OffsetNote.parse(entry.metadata)
    return topic_id is not None and note.topic is not None and note.cluster == cluster and note.topic != topic_id


def without_topic(entry: CommitOffset) -> CommitOffset:
    """Return the offset with a note that names no topic, so that it is valid for any topic of this name."""
    note = replace(OffsetNote.parse(entry.metadata), topic=None, cluster=None)
    return replace(entry, metadata=note.metadata)


def rewinds_in(committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
    """Return the ids of the rewinds whose marks these committed offsets have.

    A read without a checkpoint begins at the group's offsets, so it follows all rewinds. The read's commits repeat the
    marks, so that stopped queries follow the rewinds when they restart from their checkpoints.
    """
    return {tp: rewind_id for tp, entry in committed.items() if (rewind_id := OffsetNote.parse(entry.metadata).rewound)}


def with_notes(
    offsets: Mapping[TopicPartition, int],
    rewinds: Mapping[TopicPartition, str],
    stream: str | None,
    epochs: Mapping[TopicPartition, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    cluster: str | None = None,
) -> dict[TopicPartition, CommitOffset]:
    """Return offsets to commit, each with the note of its stream, its topic, and its partition's rewind, if any.

    Args:
        offsets: The offsets.
        rewinds: The id of the rewind of each partition that was rewound.
        stream: The stream's id.
        epochs: The known leader epochs of the offsets.
        topic_ids: The known ids of the topics.
        cluster: The cluster's id; None: unknown.
    """
    epochs, topic_ids = epochs or {}, topic_ids or {}
    found = {}
    for tp, offset in offsets.items():
        topic_id = topic_ids.get(tp.topic)
        note = OffsetNote(stream, rewinds.get(tp), topic_id, cluster)
        found[tp] = CommitOffset(offset, epochs.get(tp, -1), note.metadata, topic_id)
    return found


# A coordinator appends the offsets of one request as one record batch, and refuses a batch above the broker's
# message.max.bytes (1,048,588 by default) with INVALID_COMMIT_OFFSET_SIZE. A quarter leaves room for lower settings,
# and for the records of other requests that the coordinator appends in the same batch.
MAX_BYTES = 256 * 1024
# The lengths, numbers, timestamp and topic id of an offset's record (OffsetCommitKey, OffsetCommitValue).
_RECORD_BYTES = 80


def chunks(
    group: str, offsets: Mapping[TopicPartition, CommitOffset], max_bytes: int = MAX_BYTES
) -> Iterator[dict[TopicPartition, CommitOffset]]:
    """Yield the offsets in parts, each small enough for one request; no part is empty.

    Args:
        group: The group id, which each record repeats.
        offsets: The offsets to commit.
        max_bytes: The maximum size of a part in the coordinator's log, in bytes.
    """
    part: dict[TopicPartition, CommitOffset] = {}
    size = 0
    for tp, entry in sorted(offsets.items()):
        record = _RECORD_BYTES + sum(len(text.encode()) for text in (group, tp.topic, entry.metadata))
        if part and size + record > max_bytes:
            yield part
            part, size = {}, 0
        part[tp] = entry
        size += record
    if part:
        yield part
