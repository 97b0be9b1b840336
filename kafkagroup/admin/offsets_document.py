"""The JSON of a group's offsets (`offsets export`, `import`).

    {"version": 1, "group": "billing", "cluster": "jZ0yEr2IQSyJ6lB2nXv8gw",
     "topics": {"orders": {"id": "aVJo0ssOTxOMQ4bkUl_1Sw",
                           "partitions": {"0": {"offset": 7, "leader_epoch": 3, "metadata": ""}}}}}

Offsets are valid only in one cluster and for one topic id. The document has both ids, so an import into another
cluster or topic is refused. Equal offsets have equal texts, which can be compared and kept under version control.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.commits import CommitOffset
from kafka_source.model.rewind_target import MAX_LONG

_VERSION = 1


@dataclass(frozen=True, slots=True)
class OffsetsDocument:
    """The committed offsets of a group.

    Attributes:
        group: The group id.
        cluster: The id of the cluster in which the offsets are valid; None: unknown.
        offsets: The committed offsets with their leader epochs and metadata, by partition.
        topics: The ids of those topics that have an id.
    """

    group: str
    cluster: str | None
    offsets: Mapping[TopicPartition, CommitOffset]
    topics: Mapping[str, str] = field(default_factory=dict)

    def restricted_to(self, topics: frozenset[str]) -> OffsetsDocument:
        """Return the document with these topics only."""
        return replace(self, offsets={tp: one for tp, one in self.offsets.items() if tp.topic in topics})

    def to_json(self) -> str:
        """Return the document as text, with a line break at its end."""
        by_topic: dict[str, Any] = {}
        for tp, one in sorted(self.offsets.items()):
            topic = by_topic.setdefault(tp.topic, {"id": self.topics.get(tp.topic), "partitions": {}})
            topic["partitions"][str(tp.partition)] = {
                "offset": one.offset,
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
            }
        document = {"version": _VERSION, "group": self.group, "cluster": self.cluster, "topics": by_topic}
        return json.dumps(document, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> OffsetsDocument:
        """Parse a document.

        Raises:
            InvalidConfigurationError: The text is no such document, or has a later version.
        """
        try:
            return _parsed(json.loads(text))
        except (json.JSONDecodeError, RecursionError):
            problem = "it is not JSON"
        except KeyError as missing:
            problem = f"it has no {missing}"
        except (TypeError, AttributeError):
            problem = "a part of it has another type"
        except ValueError as wrong:
            problem = str(wrong)
        raise InvalidConfigurationError(f"Not a document of `kafkagroup offsets export`: {problem}.")

    @staticmethod
    def from_csv(text: str, group: str | None) -> OffsetsDocument:
        """Parse the output of `kafka-consumer-groups.sh --export`: TOPIC,PARTITION,OFFSET, or GROUP,TOPIC,….

        Args:
            text: The text. It has no cluster id and no topic ids, so these are not compared.
            group: The group whose offsets are returned; None: the text's only group.

        Raises:
            InvalidConfigurationError: The text does not have this form, has no offset of the group, or has several
                groups and `group` is None.
        """
        found: dict[str, dict[TopicPartition, CommitOffset]] = {}
        for number, line in enumerate(csv.reader(text.splitlines()), 1):
            row = [cell.strip() for cell in line]
            try:
                if row:
                    of, topic, partition, offset = row if len(row) == 4 else (group or "", *row)
                    found.setdefault(of, {})[TopicPartition(topic, int(partition))] = CommitOffset(_offset(int(offset)))
            except ValueError:
                raise InvalidConfigurationError(
                    f"Line {number} of the file is not TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET, as "
                    "`kafka-consumer-groups.sh --export` writes it; a document of `kafkagroup offsets export` is JSON."
                ) from None
        named = group or (next(iter(found)) if len(found) == 1 else "")
        if not found.get(named) or not named:
            groups = ", ".join(filter(None, found)) or "no group"
            raise InvalidConfigurationError(f"The file has offsets of {groups}: name one of its groups with --group.")
        return OffsetsDocument(named, None, found[named])


def check_place(document: OffsetsDocument, cluster: str | None, topics: Mapping[str, str | None]) -> None:
    """Check that the offsets of a document are valid in a cluster.

    Args:
        document: The document.
        cluster: The cluster's id; None: unknown.
        topics: The current id of each topic that exists; None: the brokers send no ids.

    Raises:
        InvalidConfigurationError: The document is of another cluster, or a topic was deleted or created again.
    """
    if document.cluster is not None and cluster is not None and document.cluster != cluster:
        raise InvalidConfigurationError(
            f"The offsets are of cluster {document.cluster}, and this is cluster {cluster}, in which records have "
            "other offsets. Use `rewind --to` with a time. If the topics were copied with their offsets, remove "
            "`cluster` from the document."
        )
    for topic in sorted({tp.topic for tp in document.offsets}):
        if topic not in topics:
            raise InvalidConfigurationError(f"Topic {topic} of the document does not exist; leave it out with --topic.")
        then, now = document.topics.get(topic), topics[topic]
        if document.cluster == cluster and then is not None and now is not None and then != now:
            raise InvalidConfigurationError(
                f"Topic {topic} was deleted and created again since the export (id {then}, now {now}): the exported "
                "offsets mean other records. Leave it out with --topic, or use `rewind`."
            )


def _parsed(document: Mapping[str, Any]) -> OffsetsDocument:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']!r}, this kafkagroup reads {_VERSION}")
    offsets, ids = {}, {}
    for topic, entry in document["topics"].items():
        if entry.get("id") is not None:
            ids[topic] = str(entry["id"])
        for number, one in entry["partitions"].items():
            tp = TopicPartition(topic, int(number))
            offsets[tp] = CommitOffset(
                _offset(one["offset"]), int(one.get("leader_epoch", -1)), one.get("metadata") or ""
            )
    return OffsetsDocument(str(document["group"]), document.get("cluster"), offsets, ids)


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_LONG:
        raise ValueError(f"the offset {value!r} must be a number between 0 and {MAX_LONG}")
    return value
