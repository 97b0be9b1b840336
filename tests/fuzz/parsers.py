"""The parsers of bytes from the network, as functions of any bytes, and what each may raise.

A parser ends within a second for any input, takes no memory beyond a multiple of the input's size, and either returns
or raises one of its errors. The assertions are what must hold for everything that it returns.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from assignors import (
    Assignment,
    AssignmentError,
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    WireFormatError,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
    load,
)
from kafka_source.errors import InvalidConfigurationError
from kafka_source.fetch import protocol
from kafka_source.group.classic.leader import check, failure, failure_reason, stale, with_held, without_held
from kafka_source.group.model import GroupMember
from kafka_source.kafka_client.framing import FrameBuffer, FrameError
from kafka_source.kafka_client.messages import cluster, decode_response, group, login, quota, transaction
from kafka_source.kafka_client.messages.tables import Request
from kafka_source.kafka_client.metadata import read_snapshot
from kafka_source.produce import protocol as produce_protocol
from kafka_source.sink.two_phase.ledger import read_decision


@dataclass(frozen=True)
class Parser:
    """A parser.

    Attributes:
        run: Parses bytes, and asserts what must hold for the result.
        refuses: The errors that say that bytes are not valid.
        seeds: Valid inputs.
    """

    run: Callable[[bytes], object]
    refuses: type[Exception]
    seeds: Sequence[bytes]

    def __call__(self, data: bytes) -> bool:
        """Return whether the bytes are valid; raise if the parser breaks a promise."""
        try:
            self.run(data)
        except self.refuses as problem:
            assert str(problem), f"{type(problem).__name__} says nothing"
            return False
        return True


# ---- responses that are parsed by hand


_TOPIC_ID = UUID(int=7)


def _fetch(data: bytes) -> None:
    buffer = bytearray(data)
    try:
        response = protocol.parse(buffer, len(data))
    except ValueError:
        response = protocol.parse(buffer, len(data), {_TOPIC_ID: "orders"})
    end = 0
    for one in response.partitions:
        assert end <= one.begin <= one.end <= len(data)
        end = one.end


def _produce(data: bytes) -> None:
    try:
        produce_protocol.parse(bytearray(data), len(data), produce_protocol.BY_NAME, {})
    except ValueError:
        produce_protocol.parse(bytearray(data), len(data), produce_protocol.BY_ID, {_TOPIC_ID: "orders"})


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


_FETCHED = (
    struct.pack(">iihii", 1, 0, 0, 0, 1)
    + _string(b"orders")
    + struct.pack(">i", 2)
    + struct.pack(">ihqqqiqqii", 0, 0, 9, 9, 0, 1, 7, 3, -1, 5)
    + b"batch"
    + struct.pack(">ihqqqiii", 1, 1, -1, -1, -1, -1, 2, 0)
)
_FETCHED_BY_ID = (
    struct.pack(">ibihib", 1, 0, 0, 0, 0, 2)
    + _TOPIC_ID.bytes
    + b"\3"
    + struct.pack(">ihqqqbqqbib", 0, 0, 9, 9, 0, 2, 7, 3, 0, -1, 6)
    + b"batch\0"
    + struct.pack(">ihqqqbib", 1, 1, -1, -1, -1, 0, 2, 1)
    + b"\0\0\1\0\3abc"
)
_PRODUCED = (
    struct.pack(">ii", 1, 1)
    + _string(b"orders")
    + struct.pack(">iihqqqii", 1, 0, 10, 5, -1, 0, 1, 3)
    + _string(b"too large")
    + _string(b"one record was refused")
    + struct.pack(">i", 0)
)

# ---- responses that are parsed by generated code

REQUESTS: Sequence[Any] = sorted(
    {
        request
        for module in (cluster, group, login, quota, transaction)
        for request in vars(module).values()
        if isinstance(request, type) and issubclass(request, Request) and request is not Request
    },
    key=lambda request: int(request.API_KEY),
)
_CORRELATION = bytes(4)


def _response(data: bytes) -> None:
    """Decode a response; the first two bytes choose the kind and the version."""
    if len(data) < 2:
        raise ValueError("no kind")
    kind = REQUESTS[data[0] % len(REQUESTS)]
    version = kind.min_version + data[1] % (kind.max_version + 1 - kind.min_version)
    decoded = decode_response(kind(), version, 0, _CORRELATION + data[2:])
    if isinstance(decoded, cluster.MetadataResponse):
        read_snapshot(decoded)
    if isinstance(decoded, group.JoinGroupResponse):
        for member in decoded.members:
            GroupMember(member.member_id, member.group_instance_id, bytes(member.metadata))


def _empty_responses() -> list[bytes]:
    """Return bytes of zeros and ones for each kind in its newest version: a few are valid."""
    heads = [bytes([number, kind.max_version - kind.min_version]) for number, kind in enumerate(REQUESTS)]
    return [head + body for head in heads for body in (bytes(40), b"\x01" * 40, b"\x02" * 200)]


# ---- frames


def _frames(data: bytes) -> None:
    """Feed a stream in pieces of the size that the first byte says."""
    if not data:
        return
    step, stream = 1 + data[0], data[1:]
    frames, seen = FrameBuffer(1000), 0
    for start in range(0, len(stream), step):
        for frame in frames.feed(stream[start : start + step]):
            assert 4 <= len(frame) <= 1000
            seen += len(frame) + 4
    assert seen <= len(stream)


# ---- the consumer protocol

_OWNED = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
_SAID = Subscription(("a", "b"), encode_sticky_user_data(_OWNED, 4), _OWNED, 4, "rack")


def _subscription(data: bytes) -> None:
    said = decode_subscription(data)
    again = decode_subscription(encode_subscription(said))
    assert sorted(again.topics) == sorted(said.topics)
    assert sorted(again.owned) == sorted(said.owned)
    assert (again.user_data, again.generation, again.rack) == (said.user_data, said.generation, said.rack)


def _assignment(data: bytes) -> None:
    given = decode_assignment(data)
    failure_reason(given)
    made, held = without_held(given)
    again = decode_assignment(encode_assignment(made))
    assert sorted(again.partitions) == sorted(made.partitions)
    assert all(isinstance(tp, TopicPartition) for tp in held)


_ASSIGNORS = [
    load(name)
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky", "copartition", "redundant", "weighted")
]
_CLUSTER = ClusterMetadata({"a": 3, "b": 3}, {"a": [["x"], ["y"], []], "b": [["x"], ["x"], ["y"]]})


def _group(data: bytes) -> None:
    """Lead a group of three members, whose user data are parts of the input, with every strategy."""
    if len(data) < 3:
        return
    first, second = data[0], data[0] + data[1]
    parts = [data[3 : 3 + first], data[3 + first : 3 + second], data[3 + second :]]
    for assignor in _ASSIGNORS:
        group = {
            f"m{number}": Subscription(("a", "b"), part or None, _OWNED[number:], data[2] % 7 - 1)
            for number, part in enumerate(parts)
        }
        try:
            plan = assignor.assign(_CLUSTER, group)
        except AssignmentError as problem:
            assert str(problem), "an error that says nothing"
            continue
        # Whatever members say of the past, every partition gets an owner; a cooperative strategy takes two rebalances.
        check(assignor, _CLUSTER, group, plan)
        assert RebalanceProtocol.COOPERATIVE in assignor.protocols or stale(_CLUSTER, group, plan) is None


def _user_data(data: bytes) -> None:
    decode_sticky_user_data(data)
    decode_cooperative_user_data(data)


# ---- metadata of offsets


def _decision(data: bytes) -> None:
    read_decision("prefix", 3, (TopicPartition("t", 0),), data.decode(errors="replace"), 2)


_STICKY = encode_sticky_user_data(_OWNED, 4)
_WEIGHTED = struct.pack(">i", 3) + _STICKY
_PARTS = [_STICKY, _WEIGHTED, encode_assignment(Assignment(_OWNED, _STICKY)), struct.pack(">i", 4)]

PARSERS: Mapping[str, Parser] = {
    "fetch_response": Parser(_fetch, ValueError, [_FETCHED, _FETCHED_BY_ID]),
    "produce_response": Parser(_produce, ValueError, [_PRODUCED]),
    "response": Parser(_response, ValueError, _empty_responses()),
    "frames": Parser(_frames, FrameError, [b"\x03\x00\x00\x00\x05hello\x00\x00\x00\x04four", b"\x10HTTP/1.1 400"]),
    "subscription": Parser(_subscription, WireFormatError, [encode_subscription(_SAID, v) for v in range(4)]),
    "assignment": Parser(
        _assignment,
        WireFormatError,
        [
            encode_assignment(Assignment(_OWNED, b"x")),
            encode_assignment(with_held(Assignment(_OWNED, b"x"), _OWNED[:1])),
            *failure("no reason", [GroupMember("m", None, b"")]).values(),
        ],
    ),
    "group": Parser(_group, AssignmentError, [bytes([len(a), len(b), 5]) + a + b + a for a in _PARTS for b in _PARTS]),
    "user_data": Parser(_user_data, WireFormatError, _PARTS),
    "decision": Parser(
        _decision, InvalidConfigurationError, [b'["q",2,[["0-0",15,2,5,1],["1-0",14,2,5,2]],{"out":[[0,1],[4,9]]}]']
    ),
}
