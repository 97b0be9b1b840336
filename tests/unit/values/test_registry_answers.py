"""What each answer of a registry does, in the driver and in a task of each mode: the fault, the error, the repeats."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, RetriableError, UnreadableRecordError
from kafka_source.options.kinds import Mode
from kafka_source.values.reader_schema import ReaderSchema, registered
from kafka_source.values.registry import RegisteredSchema, registry_of
from tests.support.avro import framed, record
from tests.support.native import kernel
from tests.support.registry_server import HANGS_UP, SILENT, Answer, RegistryServer

kernel()

from kafka_source.values.decoding import ColumnDecoding, Decoding  # noqa: E402
from tests.support.decoded import decode  # noqa: E402

ORDER = record("Order", {"name": "id", "type": "long"})
SECRET = "hunter2-of-the-registry"
KNOWN, ASKED, SUBJECT = "/schemas/ids/1", "/schemas/ids/2", "/subjects/s"
ERRORS = {"config": InvalidConfigurationError, "login": AuthenticationError, "away": RetriableError}

# What the registry does with a schema that was read before, while it gives an answer in place of another one.
OTHERS = ("returned", "refused", "none")
# Where the answer is the record's fault.
ALWAYS, UNLESS_REFUSED, IF_RETURNED, NEVER = OTHERS, ("returned", "none"), ("returned",), ()


class Row(NamedTuple):
    """An answer of the registry, and what it does.

    Attributes:
        answer: The answer; None: the connection is refused.
        error: The error that it is for what an option names, and for a record where it is not the record's fault.
        says: What the error says.
        blames_record: For which `OTHERS` it is the fault of a record that names the schema.
    """

    answer: Answer | None
    error: str
    says: str
    blames_record: tuple[str, ...] = NEVER


def coded(status: int, code: int | None, message: str | None = "It is\nwrong.") -> Answer:
    return status, {}, json.dumps({"error_code": code, "message": message}).encode()


NO_API = "schema.registry.url takes the root of Confluent's API"
PATH, STRANGE = f"check its path. {NO_API}", f"answers with something that is no schema. {NO_API}"
LOGIN = "check schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token"
REDIRECT = {"Location": "{url}/elsewhere?token=x"}
TABLE = {
    **{f"404 {n}": Row(coded(404, n), "config", "does not have", UNLESS_REFUSED) for n in (40401, 40402, 40403)},
    **{f"404 {n}": Row(coded(404, n), "config", f"HTTP 404: {PATH}", IF_RETURNED) for n in (None, 0, 404)},
    "404 page": Row((404, {}, b"<html>"), "config", f"HTTP 404: {PATH}", IF_RETURNED),
    **{f"{n}": Row(coded(n, None), "config", f"HTTP {n}: {PATH}", IF_RETURNED) for n in (400, 406, 410)},
    **{f"{n}": Row(coded(n, n), "config", f"(HTTP {n}). It says: It is wrong.", IF_RETURNED) for n in (409, 422)},
    "422 mute": Row(coded(422, 42201, None), "config", f"HTTP 422: {PATH}", IF_RETURNED),
    "401": Row(coded(401, 40101), "login", f"(HTTP 401): {LOGIN}"),
    "403": Row(coded(403, 40301), "login", f"(HTTP 403): {LOGIN}", IF_RETURNED),
    **{f"{n}": Row(coded(n, 50001), "away", f"(HTTP {n}). Check") for n in (408, 425, 429, 500, 502, 503, 504)},
    "page": Row((200, {}, b"<html>welcome"), "config", STRANGE),
    "number": Row((200, {}, b'{"schema": 5, "id": "5"}'), "config", STRANGE),
    "brackets": Row((200, {}, b"[" * 100_000), "config", STRANGE),
    "large": Row((200, {}, b" " * (1 << 20 | 1)), "config", "is larger than 1048576 bytes", ALWAYS),
    "redirect": Row((302, REDIRECT, b""), "config", "it redirects to http://127.0.0.1, which is not followed"),
    "redirect to nowhere": Row((302, {}, b""), "config", f"HTTP 302: {PATH}"),
    "hang-up": Row((HANGS_UP, {}, b""), "away", "(RemoteDisconnected). Check that the registry runs"),
    "silence": Row((SILENT, {}, b""), "away", "(no answer within 1 s). Check that the registry runs"),
    "refused": Row(None, "away", "(Connection refused). Check that the registry runs"),
}

REQUESTS: dict[str, tuple[Callable[[Settings], object], str]] = {
    "the schema with id 2": (lambda to: registered(to, 2), "cannot be used"),
    "the newest schema of subject s": (lambda to: registry_of(to).newest("s", "set it"), ": set it."),
    "the schema as a version of subject s": (lambda to: registry_of(to).register("s", "{}", "JSON"), ": register it"),
    "the given schema among the versions of subject s": (
        lambda to: registry_of(to).id_of("s", "{}", "JSON"),
        ": register it, or set auto.register.schemas=true.",
    ),
}
"""What the driver asks for, and what the error says where the registry does not have it."""
_logins = itertools.count()


class Answering:
    """A registry with schema 1, which gives the answer of a row in place of schema 2 and of a subject's."""

    def __init__(self, server: RegistryServer, row: Row) -> None:
        self.server, self.url, self.row = server, server.url, row
        server.add(1, ORDER, "known")
        if row.answer is None:
            with RegistryServer() as gone:
                self.url = gone.url
            return
        status, headers, body = row.answer
        self.answer: Answer = status, {name: text.format(url=server.url) for name, text in headers.items()}, body
        paths = (ASKED, SUBJECT, f"{SUBJECT}/versions", f"{SUBJECT}/versions/latest")
        server.answers |= dict.fromkeys(paths, self.answer)

    def client(self, timeout_ms: int = 1) -> Settings:
        """The settings of a client that no process has yet."""
        login = f"me{next(_logins)}:{SECRET}"
        return Settings({"url": self.url, "timeout.ms": str(timeout_ms), "basic.auth.user.info": login})

    def is_error(self, ask: Callable[[], object], what: str, *more: str) -> None:
        """Assert that this is the row's error, which names what was asked for, says no secret, and says more."""
        with pytest.raises(ERRORS[self.row.error]) as failed:
            ask()
        said = str(failed.value)
        assert [text for text in (what, self.row.says, *more) if text not in said] == []
        assert self.url in said or self.row.blames_record == ALWAYS
        assert SECRET not in said


@pytest.fixture(params=TABLE)
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    with RegistryServer() as server:
        yield Answering(server, TABLE[request.param])
        assert "/elsewhere" not in str(server.asked)


@pytest.mark.parametrize("what", REQUESTS)
def test_what_an_option_names_is_an_error_and_is_asked_for_again_only_where_the_registry_is_away(
    answering: Answering, what: str
) -> None:
    (ask, advice), server, row = REQUESTS[what], answering.server, answering.row
    answering.is_error(lambda: ask(answering.client()), what, advice if row.blames_record == UNLESS_REFUSED else "")
    if row.answer is None or row.answer[0] == SILENT:
        return
    path, asked = server.asked[-1], len(server.asked)
    server.answers[path] = 200, {}, json.dumps({"schema": '"long"', "id": 2}).encode()
    server.first = [answering.answer]
    again = answering.client(timeout_ms=3000)
    if row.error == "away":
        ask(again)
    else:
        answering.is_error(lambda: ask(again), what)
    assert server.asked[asked:] == [path] * (2 if row.error == "away" else 1)


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_what_a_record_names_is_for_the_mode_only_where_it_is_the_records_fault(
    answering: Answering, others: str, mode: Mode
) -> None:
    server, row, told = answering.server, answering.row, list[int]()
    if others == "refused" and row.answer is not None:
        server.answers[KNOWN] = answering.answer
    reader = ReaderSchema(json.dumps(ORDER), None if others == "none" else 1)
    column = ColumnDecoding(reader, reader.column_type(), "confluent", "_corrupt_record", answering.client())
    ids = pa.array([framed(2, ORDER, {"id": 7})] if others == "none" else [framed(n, ORDER, {"id": 7}) for n in (1, 2)])
    offsets = pa.array(range(100, 100 + len(ids)))
    batch = pa.record_batch({"value": ids, "topic": ["t"] * len(ids), "partition": [3] * len(ids), "offset": offsets})

    def on_bad(bad: pa.RecordBatch, _: object) -> None:
        told.extend(bad["offset"].to_pylist())

    def decoded() -> list[tuple[int, bool, bool]]:
        rows, made = decode(batch, Decoding((column,), mode), None, on_bad)
        is_bad = made.get("_corrupt_record", pa.nulls(rows.num_rows)).is_valid().to_pylist()
        return list(zip(rows["offset"].to_pylist(), made["value"].is_valid().to_pylist(), is_bad, strict=True))

    good, last = [(one, True, False) for one in offsets.to_pylist()[:-1]], offsets.to_pylist()[-1]
    if others not in row.blames_record:
        # Schema 1 was compared, and refused as well.
        compared = others == "refused" and row.blames_record == UNLESS_REFUSED
        answering.is_error(decoded, "schema with id 2", "nor the schema with id 1, which it had" if compared else "")
        # The id was not taken for one that is unknown.
        server.add(2, ORDER)
        assert row.answer is None or decoded() == [*good, (last, True, False)]
    elif mode == "FAILFAST":
        with pytest.raises(UnreadableRecordError, match=rf"offset {last}.*schema id is 2"):
            decoded()
    else:
        assert decoded() == good + [(last, False, True)] * (mode == "PERMISSIVE")
        assert told == [last]
        return
    assert told == []


def test_an_id_of_a_record_that_comes_late_is_no_bad_record(answering: Answering) -> None:
    server, row = answering.server, answering.row
    server.first = [] if row.answer is None else [answering.answer]
    server.add(2, ORDER)
    lasts = row.answer is None or row.answer[0] == SILENT
    client = registry_of(answering.client(timeout_ms=5000 if row.error == "away" and not lasts else 300))

    def ask() -> object:
        return client.by_ids([2], read_before=[1])[2]

    if lasts or (row.error != "away" and not row.blames_record):
        answering.is_error(ask, "the schema with id 2")
    else:
        assert isinstance(ask(), RegisteredSchema) == (row.blames_record != ALWAYS)
