"""Write dead letters back to the records' topics, one for each record, in transactions that also commit the progress.

The progress is stored as committed offsets of the group `{topic}-redrive`. A record may have several dead letters,
because sinks write them at least once. A letter's headers name the record's place (topic, partition, offset). The
places of redriven letters are kept in memory, about 100 bytes each; a later run reads these places from the topic, and
counts letters before the start of the first run as redriven, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_source.client_config import Settings
from kafka_source.errors import OptionError
from kafka_source.produce.dead_letters import PREFIX
from kafka_source.produce.records import HEADERS
from kafkagroup.admin.groups import Groups
from kafkagroup.admin.topics import Topics
from kafkagroup.arrow import consume, read
from kafkagroup.arrow.reading import DEFAULT_MAX_BYTES
from kafkagroup.arrow.settings import SettingValue

log = logging.getLogger(__name__)

ATTEMPT = "kafkagroup.redrive.attempt"
"""The header that counts how often a record was put back, as text."""

# If no letter arrives in this time, only markers of transactions are left in the topic.
_QUIET_SECONDS = 2.0
_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset")
_PLACE_COLUMNS = ("headers", "partition", "offset")

_Headers = Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of a run.

    Attributes:
        letters: The number of records written.
        doubles: The number of letters left out because another letter has the same record.
        others: The number of records left out because their headers name no original record: they are no dead letters.
    """

    letters: int = 0
    doubles: int = 0
    others: int = 0

    def plus(self, batch: _Batch) -> Redriven:
        """Return the counts after a further batch."""
        return Redriven(self.letters + len(batch.rows), self.doubles + batch.doubles, self.others + batch.others)


class _Place(NamedTuple):
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class _Batch:
    """The records and results of a batch of letters."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    places: set[_Place] = field(default_factory=set)
    doubles: int = 0
    others: int = 0


def redrive(
    settings: Settings,
    topic: str,
    *,
    to: str | None = None,
    since: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Redriven:
    """Write back the dead letters that came since the previous run, one for each record.

    A record is written with its key, value and own headers, and the header `kafkagroup.redrive.attempt`. A later run
    for the same topic fences a run that is still active.

    Args:
        settings: Settings of Kafka's clients, such as `bootstrap.servers`.
        topic: The topic of the dead letters.
        to: The topic to write to; None: each letter goes to the topic of its record, where all groups read it again.
        since: Where the first run begins: a time (ISO 8601, or ms since 1970), or -1h for one hour ago. Later runs
            ignore it.
        max_bytes: The approximate memory that records take.

    Raises:
        OptionError: A setting or an argument is wrong, or `to` is the topic of the dead letters.
        UnknownTopicError: A topic does not exist.
        FencedError: A later run has begun.
        UnknownOutcomeError: A coordinator has not reported whether a transaction is committed. Run again: the new run
            continues after the committed letters.
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """
    if to == topic:
        raise OptionError("to", to, "a topic other than that of the dead letters")
    group = f"{topic}-redrive"
    config = {"isolation.level": "read_committed", **settings.given}
    committed = {tp.partition: offset for tp, offset in Groups(settings).committed(group).items()}
    ends = {row.partition: row.end or 0 for row in Topics(settings).describe(topic)}
    left = {partition for partition, end in ends.items() if end > committed.get(partition, 0)}
    # A static member, so that after a kill the next run need not wait for the end of the killed run's session.
    member = {**config, "group.id": group, "group.instance.id": group}
    written = Redriven()
    if not left:
        return written
    done = _places_before(committed, config, topic)
    with consume(
        topic,
        member,
        # The first run commits its start in all partitions before it reads. Partitions that were added later begin at
        # their first letter.
        start="earliest" if committed else since or "earliest",
        columns=_COLUMNS,
        max_bytes=max_bytes,
        max_wait=_QUIET_SECONDS,
        # Letters that retention has deleted cannot be redriven by any run.
        fail_on_data_loss=False,
        bar=False,
    ) as stream:
        reading = iter(stream)
        while left and (batch := next(reading, None)) is not None:
            chosen = _choose(batch, done, to)
            with stream.transaction() as transaction:
                if chosen.rows:
                    transaction.write(None, _table(chosen.rows))
            done |= chosen.places
            written = written.plus(chosen)
            places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
            left -= {partition for partition, offset in places if offset + 1 >= ends[partition]}
    return written


def _places_before(committed: Mapping[int, int], config: Mapping[str, SettingValue], topic: str) -> set[_Place]:
    """Return the places of the letters that earlier runs have put back."""
    places = set[_Place]()
    if committed:
        for batch in read(topic, config, columns=_PLACE_COLUMNS, fail_on_data_loss=False, bar=False):
            for row in batch.to_pylist():
                place = _place(row["headers"])
                if place is not None and row["offset"] < committed.get(row["partition"], 0):
                    places.add(place)
    return places


def _choose(batch: pa.RecordBatch, done: set[_Place], to: str | None) -> _Batch:
    chosen = _Batch()
    for row in batch.to_pylist():
        place = _place(row["headers"])
        if place is None:
            chosen.others += 1
            log.warning("%s-%d offset %d is no dead letter", row["topic"], row["partition"], row["offset"])
        elif place in done or place in chosen.places:
            chosen.doubles += 1
        else:
            chosen.places.add(place)
            written = {"key": row["key"], "value": row["value"], "headers": _headers(row["headers"])}
            chosen.rows.append({"topic": to or place.topic, **written})
    return chosen


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "headers": HEADERS}
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


def _place(headers: _Headers) -> _Place | None:
    """Return the place of a letter's record. The last of several headers with the same name counts."""
    last = {header["key"]: header["value"] for header in headers or ()}
    try:
        topic, partition, offset = (last[PREFIX + name].decode() for name in ("topic", "partition", "offset"))
        return _Place(topic, int(partition), int(offset))
    except (KeyError, AttributeError, ValueError):
        return None


def _headers(headers: _Headers) -> list[Mapping[str, Any]]:
    own = [header for header in headers or () if not header["key"].startswith(PREFIX) and header["key"] != ATTEMPT]
    counts = [header["value"] or b"" for header in headers or () if header["key"] == ATTEMPT]
    attempts = int(counts[-1]) if counts and counts[-1].isdigit() else 0
    return [*own, {"key": ATTEMPT, "value": str(attempts + 1).encode()}]
