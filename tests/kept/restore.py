"""Put what an earlier version left behind on a broker of now: topics, checkpoint, and the offsets of groups.

Only what a new broker gives itself is replaced in the kept text: the cluster's id, topic ids, producer ids and epochs.
Names get a number, so that tests do not meet. All else stays as it was written; `generate` says what there is.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicCollection
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

KEPT = Path(__file__).parent

Row = tuple[int, int]
"""Partition and offset of a record of the source; its value is both, `partition-offset`."""

_numbers = itertools.count(1)


def value(row: Row) -> str:
    """What a record of the source holds."""
    return f"{row[0]}-{row[1]}"


class Kept:
    """One kept case.

    Its topics are made, those of the source with the records that they had and `beyond` more, and its checkpoint is
    in `folder`; offsets of groups are not committed before `commit_groups`.

    Args:
        kafka: The broker.
        commit: Which wrote it.
        case: Its folder.
        folder: For the checkpoint.
        beyond: Records in each partition of the source that no kept batch has read.
    """

    def __init__(self, kafka: EmbeddedKafka, commit: str, case: str, folder: Path, beyond: int = 10) -> None:
        self._kafka = kafka
        self.name = f"kept-{case}-{os.getpid()}-{next(_numbers)}"
        self.checkpoint = folder / "checkpoint"
        self._given = KEPT / commit / case
        before = json.loads((self._given / "case.json").read_text(encoding="utf-8"))
        self._replaced = {f"kept-{case}": self.name}
        for topic, about in before["topics"].items():
            kafka.create_topic(topic.replace(f"kept-{case}", self.name), partitions=about["partitions"])
        admin = kafka.admin()
        self._replaced[before["cluster"]] = admin.describe_cluster().result(30).cluster_id
        names = {topic.replace(f"kept-{case}", self.name): about["id"] for topic, about in before["topics"].items()}
        for name, described in admin.describe_topics(TopicCollection(list(names))).items():
            self._replaced[names[name]] = str(described.result(30).topic_id)
        self._case: dict[str, Any] = json.loads(self._renewed(self._given / "case.json"))
        self._restore_checkpoint()
        last = max(int(path.name) for path in (self.checkpoint / "offsets").iterdir())
        self.rows = [
            (partition, offset)
            for partition, (_, end, *_) in self._spans(last).items()
            for offset in range(end + beyond)
        ]
        self.write(self.source, self.rows)

    @property
    def source(self) -> str:
        """The topic that is read."""
        return f"{self.name}-in"

    @property
    def sink(self) -> str:
        """The topic that is written to."""
        return f"{self.name}-out"

    @property
    def group(self) -> str:
        """The source's group."""
        return f"{self.name}-group"

    @property
    def prefix(self) -> str:
        """Of the sink's transactional ids."""
        return f"{self.name}-sink"

    @property
    def pending(self) -> list[int]:
        """The batches that were planned and that Spark has not committed."""
        logs = (self.checkpoint / "offsets", self.checkpoint / "commits")
        planned, committed = ({int(path.name) for path in log.iterdir()} if log.exists() else set() for log in logs)
        return sorted(planned - committed)

    @property
    def tasks(self) -> list[list[tuple[int, int, int]]]:
        """What each input partition of the pending batch has read before: partition, start, end."""
        return [[(partition, start, end) for _, partition, start, end in task] for task in self._case["tasks"]]

    @property
    def decided(self) -> list[str]:
        """The transactional ids that the ledger's last decision names."""
        return [name for name, *_ in self._decision()[2]]

    def planned(self, *batches: int) -> list[Row]:
        """The rows of batches, as the checkpoint has them."""
        return sorted(
            (partition, offset)
            for batch in batches
            for partition, (start, end, *_) in self._spans(batch).items()
            for offset in range(start, end)
        )

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died before Spark noted that the batch is done."""
        (self.checkpoint / "commits" / str(batch)).unlink()

    def write(self, topic: str, rows: Iterable[Row]) -> None:
        """Write rows of the source, each to the partition of its number."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers})
        for row in rows:
            producer.produce(topic, value(row), partition=row[0])
        assert producer.flush(60) == 0

    def reopen(self, batch: int) -> list[Producer]:
        """Open the transactions again that the tasks of a decided batch left open; each with its rows in it."""
        producers = []
        for place, names in self._case["transactions"].items():
            rows = [row for row in self.planned(batch) if place == f"{self.sink}-{row[0]}"]
            for name in names:
                producers.append(self.open(f"{self.prefix}-{name}", rows))
                self._name_producer(name)
        return producers

    def open(self, transactional_id: str, rows: Iterable[Row]) -> Producer:
        """Write rows to the sink's topic in a transaction that stays open."""
        settings = {"bootstrap.servers": self._kafka.bootstrap_servers, "transaction.timeout.ms": 600_000}
        producer = Producer({**settings, "transactional.id": transactional_id})
        producer.init_transactions(60)
        producer.begin_transaction()
        for row in rows:
            producer.produce(self.sink, value(row), partition=row[0])
        assert producer.flush(60) == 0
        return producer

    def commit_groups(self) -> None:
        """Commit the kept offsets with their metadata, in every kept group."""
        for group, topics in self._case["groups"].items():
            offsets = {
                TopicPartition(topic, int(partition)): OffsetAndMetadata(offset, metadata, -1)
                for topic, committed in topics.items()
                for partition, (offset, metadata) in committed.items()
            }
            wait_until(partial(self._commit, group, offsets), f"the coordinator of {group}", 60)

    def committed(self) -> dict[int, tuple[int, str]]:
        """Offset and metadata of the source's group now, by partition."""
        with self._admin() as admin:
            found = admin.list_group_offsets(self.group)[self.group]
        return {tp.partition: (offset, metadata) for tp, (offset, metadata, _) in found.items()}

    def before(self) -> dict[int, tuple[int, str]]:
        """The same as it was kept."""
        committed = self._case["groups"][self.group][self.source]
        return {int(partition): (offset, metadata) for partition, (offset, metadata) in committed.items()}

    def _commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        # Not confluent-kafka's clients: they add a NUL to metadata that they commit.
        with self._admin() as admin:
            try:
                refused = {code for code in admin.alter_group_offsets(group, offsets).values() if code.errno}
            except KafkaError as error:
                refused = {type(error)}
        # The first coordinator of a new broker takes a moment.
        assert all(code.retriable for code in refused), refused
        return not refused

    def _admin(self) -> closing[KafkaAdminClient]:
        return closing(KafkaAdminClient(bootstrap_servers=self._kafka.bootstrap_servers))

    def _restore_checkpoint(self) -> None:
        for path in (self._given / "checkpoint").rglob("*"):
            if path.is_file():
                copy = self.checkpoint / path.relative_to(self._given / "checkpoint")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._renewed(path), encoding="utf-8")

    def _renewed(self, path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        return text

    def _spans(self, batch: int) -> dict[int, list[Any]]:
        """Start, end and slot of each partition of the source in a batch."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8")
        offset = json.loads(text.splitlines()[-1])
        return {int(partition): span for partition, span in offset["partitions"][self.source].items()}

    def _decision(self) -> Any:
        """The ledger's last decision, put together from its parts: query, batch, transactions, partitions."""
        ledger = f"{self.prefix}-ledger"
        groups = [ledger, *(f"{ledger}-{number}" for number in range(1, 10))]
        parts = [self._entry(group)[1] for group in groups if group in self._case["groups"]]
        return json.loads("".join(parts).partition(" ")[2])

    def _entry(self, group: str) -> list[Any]:
        """The only offset of a group, with its metadata."""
        ((entry,),) = (topic.values() for topic in self._case["groups"][group].values())
        return list(entry)

    def _name_producer(self, name: str) -> None:
        """Have the ledger name the producer that has a transaction open now."""
        with self._admin() as admin:
            now = admin.describe_transactions([f"{self.prefix}-{name}"])[f"{self.prefix}-{name}"]
        entry = next(iter(self._case["groups"][f"{self.prefix}-ledger"].values()))
        ((partition, (offset, text)),) = entry.items()
        numbers = f'["{name}",{now.producer_id},{now.producer_epoch},'
        text, count = re.subn(rf'\["{name}",\d+,\d+,', numbers, text)
        assert count == 1
        entry[partition] = [offset, text]
