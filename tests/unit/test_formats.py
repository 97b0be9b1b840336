"""The formats of each release: what it has written is read, and the newest one's is what this version writes.

When a release is tagged, `formats/VERSION.json` stays as it is for good. A later version that writes something else
adds a file of its own: `python -m tests.unit.test_formats VERSION` writes it.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from assignors import StickyUserData, Subscription, TopicPartition, encode_subscription
from assignors.lag_balanced import MeasuredMember, decode_measures, encode_measures
from assignors.model import Measures
from kafka_source.commits.halts import Obeyed
from kafka_source.commits.handoff import Entry, Record
from kafka_source.commits.side_groups import SIDE_GROUPS, private_groups
from kafka_source.group.classic.strategies import rewind_offers
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.halt import Halt, HaltKind
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.sink.two_phase.ledger import Decision, decision_text, read_decision
from kafka_source.transactions.offset_committer import transactional_id_of
from kafka_source.transactions.open_transaction import OpenTransaction
from kafkagroup.admin import OffsetsDocument
from kafkagroup.admin.health import PartitionSeen, from_text, to_text

_FOLDER = Path(__file__).parent / "formats"
_VERSIONS = {path.stem: path for path in sorted(_FOLDER.iterdir())}
_NEWEST = max(_VERSIONS, key=lambda version: [int(part) for part in version.split(".")])

_A, _B = TopicPartition("orders", 0), TopicPartition("orders", 1)
_SPANS = {_A: Span(100, 250, 0), _B: Span(90, 180, 1)}
_COPIES = {_A: Span(0, 5, 0, ((0, 0), (1, 1)))}
_IDS = {"orders": "aVJo0ssOTxOMQ4bkUl_1Sw"}
_ID = "0f" * 16
_OF_GROUP = StreamOffset(
    _SPANS, "c", 7, 4, 2, 500, 1000, _IDS, _ID, rewinds={_A: "r"}, by_sink=True, schemas={"value": 7}, epochs={_B: 3}
)
_STREAM_OFFSETS = {
    "of a group": _OF_GROUP,
    "committed by its driver": StreamOffset(_SPANS, "c", 7, 4, task_records=1000, topics=_IDS, stream=_ID),
    "without a group": StreamOffset({_A: Span(100, 250, -1)}, None),
    "of copies": StreamOffset(_COPIES, "c", 7, 2),
}
_NOTES = {
    "of all": OffsetNote(_ID, "r", "aVJo0ssOTxOMQ4bkUl_1Sw", "c"),
    "of a stream": OffsetNote(_ID),
    "of none": OffsetNote(),
}
_DECISION = Decision(
    3,
    "q",
    2,
    (_A,),
    (OpenTransaction("p-0-0", 15, 0, 5), OpenTransaction("p-1-0", 15, 1, 5, second_protocol=True)),
    (_A, _B),
)
_DOCUMENT = OffsetsDocument("billing", "c", {_A: CommitOffset(7, 3, "note"), _B: CommitOffset(5)}, _IDS)
_SEEN = {_A: PartitionSeen(7, 2, 1.5), _B: PartitionSeen(None, 0, 2.0)}
_HALT = Halt(HaltKind.STOP, "ann@host", 1_700_000_000_000, 2)
_OBEYED = Obeyed(2, "m", 1_700_000_000_000, "ann@host, pid 7")
_MEASURED = MeasuredMember(Measures(700.0), StickyUserData((_A, _B), 3))
_COMMITS = transactional_id_of("billing", (_A, _B))
_SIDE_GROUPS = [one.of("owner", {"": "", r"\d+": 2}.get(one.id, _ID)) for one in SIDE_GROUPS]


def _of_checkpoint(text: str) -> StreamOffset:
    return StreamOffset.from_json(json.loads(text))


# The value, the text that is written, and what reads it.
_FORMATS: Mapping[str, tuple[Any, str, Callable[[str], Any]]] = {
    **{f"checkpoint {name}": (one, json.dumps(one.to_json()), _of_checkpoint) for name, one in _STREAM_OFFSETS.items()},
    **{f"note {name}": (one, one.metadata, OffsetNote.parse) for name, one in _NOTES.items()},
    "decision": (_DECISION, decision_text("p", _DECISION), lambda text: read_decision("p", 3, (_A,), text, 2)),
    "hand-off": (
        Entry(3, "run", 4, 2, "id", 7, "m", None, _ID, "plan", "right"),
        json.dumps(Entry(3, "run", 4, 2, "id", 7, "m", None, _ID, "plan", "right")),
        lambda text: Entry(*json.loads(text)),
    ),
    "decided range": (Record("plan", 3, 2), json.dumps(Record("plan", 3, 2)), lambda text: Record(*json.loads(text))),
    "halt": (_HALT, _HALT.to_json(), Halt.from_json),
    "report on a halt": (_OBEYED, json.dumps(asdict(_OBEYED)), lambda text: Obeyed(**json.loads(text))),
    "side groups": ({*_SIDE_GROUPS}, json.dumps(_SIDE_GROUPS), lambda text: private_groups(json.loads(text))),
    "transactional id of commits": (_COMMITS, _COMMITS, str),
    "offers of a rewind": (
        [("kafkagroup-rewind:range", encode_subscription(Subscription(())))],
        json.dumps([(name, data.hex()) for name, data in rewind_offers(["range"])]),
        lambda text: [(name, bytes.fromhex(data)) for name, data in json.loads(text)],
    ),
    "user data of lag-balanced": (
        _MEASURED,
        encode_measures(*_MEASURED).hex(),
        lambda text: decode_measures(bytes.fromhex(text)),
    ),
    "exported offsets": (_DOCUMENT, _DOCUMENT.to_json(), OffsetsDocument.from_json),
    "state of a healthcheck": (_SEEN, to_text("billing", _SEEN), lambda text: from_text("billing", text)),
}


@pytest.mark.parametrize("version", _VERSIONS)
def test_what_a_release_has_written_is_read(version: str) -> None:
    for name, text in json.loads(_VERSIONS[version].read_text()).items():
        value, _, read = _FORMATS[name]
        assert read(text) == value, name


def test_this_version_writes_what_the_newest_release_has_written() -> None:
    assert json.loads(_VERSIONS[_NEWEST].read_text()) == {name: text for name, (_, text, _) in _FORMATS.items()}


if __name__ == "__main__":
    texts = {name: text for name, (_, text, _) in _FORMATS.items()}
    (_FOLDER / f"{sys.argv[1]}.json").write_text(json.dumps(texts, indent=1) + "\n")
