"""The client of a schema registry, which finds and registers schemas, with their references.

Each process requests an id once and keeps the response. If the registry is overloaded or unreachable, a request is
repeated for `schema.registry.timeout.ms`. Redirects are not followed, so credentials reach no other host.

If the registry refuses the schema or subject of an option, the query fails. If the registry refuses an id that a record
names (`by_ids`), a schema that this process has read is requested again. If the registry still returns that schema, the
record is bad; otherwise the registry is at fault.
"""

import http.client
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kafka_source.client_config import HIDDEN, Settings
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, OptionError, RetriableError
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.values.http_connections import Connections, Response, basic, place_of
from kafka_source.values.references import inline_references
from kafka_source.values.schema_rules import SchemaRule, changing_rules, refuse_rules

log = logging.getLogger(__name__)

_JSON = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_JSON}, application/json"

_PAUSES = RetryPolicy(0.5, 10.0)
# The time for one attempt; the next attempt may reach another server of the same name.
_ATTEMPT_SECONDS = 10.0
_DEFAULT_TIMEOUT_MS = 60_000
_OVERLOADED = (408, 425, 429)

# Schemas are limited, because any user with the right to register a schema can make all executors read it.
_MAX_BYTES = 1 << 20
_MAX_REFERENCES = 100
_MAX_DEPTH = 16

_MAX_KEPT = 1000
# Registries have signed ids.
_MAX_ID = (1 << 31) - 1

# The seconds for which a refusal counts, because a deleted schema may be registered again.
_UNUSABLE_SECONDS = 60.0
# The first and longest pause before an unknown schema is requested again: a node of the registry may get it late.
_LATE_PAUSES = (1.0, 10.0)
# The maximum number of requests a minute for unknown ids; a producer may write any number of such ids.
_UNKNOWN_A_MINUTE = 300
# The part of a process' time that may pass in waits for unknown ids.
_WAITING_SHARE = 0.1
# The seconds for which a successful check of known schemas counts, and the maximum number of requests of a check.
_CONTROL_SECONDS = 60.0
_CONTROLS = 3

# The seconds that a sink waits for a subject's newest schema, if the sink knows an earlier schema.
_KNOWN_SECONDS = 2.0

# The maximum length of a refusal in an error. A refusal may list all fields of a large schema.
_MAX_SHOWN = 2000

# Confluent's codes for no such subject, version or schema. Another 404 comes from a wrong URL.
_NOT_FOUND = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        id: Its id in the registry, which precedes values; -1: the registry has not returned the id.
        text: The schema. An Avro schema includes its references.
        kind: The type of the schema: AVRO, PROTOBUF or JSON.
        imports: The names and texts of the files that a Protobuf schema imports or to which a JSON Schema refers.
        rules: The rules that change values; empty with `schema.rules=ignore`.
    """

    id: int
    text: str
    kind: str = "AVRO"
    imports: tuple[tuple[str, str], ...] = ()
    rules: tuple[SchemaRule, ...] = ()

    def check(self, value_format: str, *, writes: bool = False) -> "RegisteredSchema | Unusable":
        """Return the schema, if it has this format.

        Raises:
            InvalidConfigurationError: The schema has rules that require a change of the values.
        """
        wanted, name = value_format.upper(), "the schema" if self.id < 0 else f"the schema with id {self.id}"
        if self.kind != wanted:
            return Unusable(f"{name} is of type {self.kind}, and not {wanted}")
        refuse_rules(self.rules, name, writes=writes)
        return self


@dataclass(frozen=True, slots=True)
class Unusable:
    """A schema that cannot be used, because of the record and not because of the registry.

    Attributes:
        reason: The reason, as a sentence without a full stop.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for a schema.

    Attributes:
        path: The path and the query of its URL.
        what: The schema in words, for errors.
        verb: The registry's action, for errors.
        body: The posted body; None: a GET.
        wants: The type of the response: a text or a number.
    """

    path: str
    what: str
    verb: str = "return"
    body: bytes | None = None
    wants: type[str] | type[int] = str


class _UnusableError(Exception):
    """Ends a lookup; see `Unusable`.

    Args:
        reason: The reason, as a sentence without a full stop.
        is_refusal: Whether the registry has refused to return the schema.
        error: The error if the refusal is the registry's fault; None: the registry does not have the schema.
    """

    def __init__(self, reason: str, *, is_refusal: bool = False, error: Exception | None = None) -> None:
        super().__init__(reason)
        self.is_refusal, self.error = is_refusal, error


@dataclass(slots=True)
class _Unknown:
    """An id that cannot be used now.

    Attributes:
        unusable: The reason.
        may_come: Whether the registry has refused to return the schema, but may return it later.
        pause: Seconds until the id is requested again.
        until: The time of the next request, by `time.monotonic`.
    """

    unusable: Unusable
    may_come: bool
    pause: float
    until: float


class _Budget:
    """An amount that is spent and refills with time.

    Args:
        most: The amount at the start, which is also the maximum.
        per_second: The refilled amount a second.
    """

    def __init__(self, most: float, per_second: float) -> None:
        self._most, self._per_second = most, per_second
        self._left, self._at = most, time.monotonic()

    @property
    def left(self) -> float:
        """The remaining amount."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        return self._left

    def spend(self, amount: float) -> None:
        """Spend an amount; a negative amount is given back."""
        self._left = min(self._most, self.left - amount)


class Registry:
    """This process's state of one registry. Threads may share this object.

    Args:
        settings: The settings of `schema.registry.`, without this prefix.

    Raises:
        OptionError: A setting is missing or wrong.
    """

    def __init__(self, settings: Settings) -> None:
        # The URL of the next request comes first.
        self._urls = tuple(_url(text.strip()) for text in settings.get("url", "").split(",") if text.strip())
        if not self._urls:
            raise OptionError("schema.registry.url", None, "the URL of a schema registry, or several with commas")
        self._headers = _headers(settings)
        self._connections = Connections(_context(settings, self._urls), _MAX_BYTES + 1)
        self._patience = settings.seconds("timeout.ms", _DEFAULT_TIMEOUT_MS)
        self._ignores_rules = settings.get("rules", "").lower() == "ignore"
        # One lookup at a time, so that tasks of one process send one request for an id.
        self._asking = threading.Lock()
        self._known: dict[int | str, RegisteredSchema] = {}
        self._unknown: dict[int | str, _Unknown] = {}
        self._requests = _Budget(_UNKNOWN_A_MINUTE, _UNKNOWN_A_MINUTE / 60)
        self._waiting = _Budget(self._patience, _WAITING_SHARE)
        self._returns_known_until = 0.0
        self._newest: dict[str, RegisteredSchema] = {}
        # The ids of schemas, by subject and text; they are kept because ids never change.
        self._ids: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"Registry({', '.join(url.address for url in self._urls)})"

    def by_id(self, schema_id: int) -> RegisteredSchema | Unusable:
        """Return the schema that an option names by its id, with its references.

        Raises:
            AuthenticationError: The registry refuses the credentials.
            InvalidConfigurationError: The server is no registry.
            RetriableError: The registry does not answer.
        """
        with self._asking:
            if schema_id in self._known:
                return self._known[schema_id]
            try:
                return self._fetch(schema_id)
            except _UnusableError as problem:
                if problem.error is not None:
                    raise problem.error from None
                return Unusable(str(problem))

    def by_ids(
        self, schema_ids: Iterable[int | str], *, patience: float | None = None, read_before: Iterable[int] = ()
    ) -> dict[int | str, RegisteredSchema | Unusable]:
        """Return the schemas that records name, with their references.

        If the registry does not have a schema, the request is repeated, so that good records are not dropped as bad: a
        producer may have registered the schema with another node. Earlier waits shorten later waits.

        Args:
            schema_ids: The schemas' ids, or their GUIDs as texts.
            patience: The time limit for a schema that was never requested; None: `schema.registry.timeout.ms`.
            read_before: Ids that another process has read from this registry.

        Raises:
            AuthenticationError: The registry refuses the credentials, or refuses a schema that it returned earlier.
            InvalidConfigurationError: The server is no registry, or not the registry of earlier requests.
            RetriableError: The registry does not answer.
        """
        wanted, before = tuple(schema_ids), tuple(read_before)
        new = [one for one in wanted if one not in self._known and one not in self._unknown]
        found = {one: self._of_record(one, before) for one in wanted}
        pause, longest = _LATE_PAUSES
        left = self._patience if patience is None else min(patience, self._patience)
        while late := [one for one in new if one in self._unknown and self._unknown[one].may_come]:
            pause = min(pause, left, self._waiting.left)
            if pause < 0.001:
                break
            log.info("The registry does not have the schemas %s. Asking again in %.1f s.", late[:10], pause)
            time.sleep(pause)
            self._waiting.spend(pause)
            left -= pause
            found |= {one: self._of_record(one, before, again=True) for one in late}
            if any(one in self._known for one in late):
                self._waiting.spend(-self._patience)
            pause = min(2 * pause, longest)
        return found

    def _of_record(
        self, schema_id: int | str, read_before: tuple[int, ...], *, again: bool = False
    ) -> RegisteredSchema | Unusable:
        if isinstance(schema_id, int) and schema_id > _MAX_ID:
            return Unusable(f"no registry has ids above {_MAX_ID}")
        if schema_id in self._known:
            return self._known[schema_id]
        with self._asking:
            if schema_id in self._known:
                return self._known[schema_id]
            before = self._unknown.get(schema_id)
            if before is not None and (self._requests.left < 1 or (not again and time.monotonic() < before.until)):
                return before.unusable
            if self._requests.left < 1:
                return Unusable(f"the registry was not asked for it, after {_UNKNOWN_A_MINUTE} unknown ids in a minute")
            try:
                found = self._fetch(schema_id)
            except _UnusableError as problem:
                self._requests.spend(1)
                if problem.is_refusal:
                    self._check_known_schemas(problem, read_before)
                return self._keep_unusable(schema_id, problem)
            self._unknown.pop(schema_id, None)
            return found

    def _fetch(self, schema_id: int | str) -> RegisteredSchema:
        path, what = _path_and_name(schema_id)
        found = self._schema(path, what, Deadline(self._patience))
        found = found if isinstance(schema_id, str) else replace(found, id=schema_id)
        _put(self._known, schema_id, found)
        return found

    def _check_known_schemas(self, refused: _UnusableError, read_before: tuple[int, ...]) -> None:
        """Raise a refusal if the registry returns none of the schemas that it returned earlier.

        A revoked right, or a URL that now leads to another server, must not make good records bad.
        """
        if time.monotonic() < self._returns_known_until:
            return
        known = [*reversed(self._known), *(one for one in read_before if one not in self._known)][:_CONTROLS]
        for one in known:
            path, what = _path_and_name(one)
            try:
                self._answer(_Request(path, what), Deadline(self._patience))
            except _UnusableError as also:
                log.warning("Repeating an earlier request to compare its answer: %s", also)
            else:
                self._returns_known_until = time.monotonic() + _CONTROL_SECONDS
                return
        if refused.error is not None:
            raise refused.error from None
        if known:
            raise InvalidConfigurationError(
                f"{refused}, nor {_path_and_name(known[0])[1]}, which it had before: check schema.registry.url, and "
                "whether another registry answers there."
            ) from None

    def newest(self, subject: str, advice: str, *, or_known: bool = False) -> RegisteredSchema:
        """Return the newest schema of a subject; raise the errors of `by_id`, and an error if no schema is usable.

        Args:
            subject: The subject.
            advice: The error's advice for a subject without a schema.
            or_known: Return the previous result if the registry does not answer.
        """
        known = self._newest.get(subject) if or_known else None
        what, path = f"the newest schema of subject {subject}", f"/subjects/{quote(subject, safe='')}/versions/latest"
        try:
            found = self._schema(path, what, Deadline(self._patience if known is None else _KNOWN_SECONDS))
        except _UnusableError as problem:
            raise problem.error or InvalidConfigurationError(f"{problem}: {advice}.") from None
        except RetriableError as away:
            if known is None:
                raise
            log.warning(
                "%s Until the registry answers, the newest schema of subject %s is %d.", away, subject, known.id
            )
            return known
        _put(self._known, found.id, found)
        _put(self._newest, subject, found)
        return found

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema, if the registry does not have it, and return its id.

        Args:
            subject: The subject that gets the schema as a version.
            text: The schema.
            kind: The type of the schema: AVRO, PROTOBUF or JSON.

        Raises:
            InvalidConfigurationError: The registry refuses the schema; with the registry's message.
            AuthenticationError: The registry refuses the credentials.
            RetriableError: The registry does not answer.
        """
        what = f"the schema as a version of subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._id(subject, text, _Request(path, what, "register", _posted(text, kind), int))

    def id_of(self, subject: str, text: str, kind: str) -> int:
        """Return the id of a subject's schema; raise the errors of `register`, or an error if the schema is missing."""
        what = f"the given schema among the versions of subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}"
        return self._id(subject, text, _Request(path, what, "find", _posted(text, kind), int))

    def _id(self, subject: str, text: str, request: _Request) -> int:
        if (subject, text) not in self._ids:
            try:
                answer = self._answer(request, Deadline(self._patience))
            except _UnusableError as problem:
                advice = "register it, or set auto.register.schemas=true"
                raise problem.error or InvalidConfigurationError(f"{problem}: {advice}.") from None
            _put(self._ids, (subject, text), int(answer["id"]))
        return self._ids[subject, text]

    def _keep_unusable(self, schema_id: int | str, problem: _UnusableError) -> Unusable:
        first, longest = _LATE_PAUSES
        before = self._unknown.pop(schema_id, None)
        pause = _UNUSABLE_SECONDS
        if problem.is_refusal:
            pause = first if before is None else min(2 * before.pause, longest)
        kept = _Unknown(Unusable(str(problem)), problem.is_refusal, pause, time.monotonic() + pause)
        _put(self._unknown, schema_id, kept)
        return kept.unusable

    def _schema(self, path: str, what: str, deadline: Deadline) -> RegisteredSchema:
        answer = self._answer(_Request(path, what), deadline)
        text, kind = _text_and_kind(answer)
        included: dict[str, str] = {}
        self._include(answer, included, deadline, _MAX_DEPTH, what)
        if included and kind == "AVRO":
            try:
                text = inline_references(text, included.values())
            except (ValueError, RecursionError) as problem:
                raise _UnusableError(f"{what} is no valid schema ({type(problem).__name__})") from None
        number = answer.get("id", -1)
        imports = () if kind == "AVRO" else tuple(included.items())
        rules = () if self._ignores_rules else changing_rules(answer)
        return RegisteredSchema(number if isinstance(number, int) else -1, text, kind, imports, rules)

    def _include(
        self, answer: Mapping[str, Any], included: dict[str, str], deadline: Deadline, depth: int, what: str
    ) -> None:
        """Fetch the references of a schema, and their references."""
        references = answer.get("references") or []
        if references and depth == 0:
            raise _UnusableError(f"{what} has references of more than {_MAX_DEPTH} levels")
        for reference in references if isinstance(references, list) else []:
            try:
                name, subject, version = (str(reference[key]) for key in ("name", "subject", "version"))
            except (TypeError, KeyError):
                raise _UnusableError(f"{what} has a reference without name, subject and version") from None
            if name in included:
                continue
            if len(included) == _MAX_REFERENCES:
                raise _UnusableError(f"{what} has more than {_MAX_REFERENCES} references")
            # Request deleted versions, too, as Java's client does, because records may still need these versions.
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}?deleted=true"
            target = f"version {version} of subject {subject}, to which {what} refers"
            found = self._answer(_Request(path, target), deadline)
            included[name], _ = _text_and_kind(found)
            self._include(found, included, deadline, depth - 1, what)

    def _answer(self, asked: _Request, deadline: Deadline) -> dict[str, Any]:
        """Return the answer to a request, which is a JSON object."""

        def attempt() -> dict[str, Any]:
            url = self._urls[0]
            seconds = min(_ATTEMPT_SECONDS, max(deadline.left, 1.0))
            try:
                return self._ask(url, asked, seconds)
            except RetriableError:
                # Put this URL last, so that the next requests try all other URLs first.
                self._urls = (*(one for one in self._urls if one is not url), url)
                raise

        def again(error: Exception, failures: int, pause: float) -> bool:
            wanted = error.seconds if isinstance(error, _AwayError) else 0.0
            if wanted > deadline.left:
                return False
            log.log(logging.INFO if failures else logging.WARNING, "%s Trying again in %.1f s.", error, pause + wanted)
            time.sleep(wanted)
            return True

        return retry(attempt, _PAUSES, on=RetriableError, deadline=deadline, again=again)

    def _ask(self, url: "_Url", asked: _Request, seconds: float) -> dict[str, Any]:
        headers = {"Accept": _ACCEPT, **self._headers, **url.headers}
        if asked.body is not None:
            headers["Content-Type"] = _JSON
        try:
            answer = self._connections.request(url.address + asked.path, asked.body, headers, seconds)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"The certificate of the schema registry {url.address} is not trusted "
                f"({error.verify_message}): set schema.registry.ssl.ca.location."
            ) from None
        except TimeoutError:
            raise _away(asked, url, f"no answer within {seconds:.0f} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise _away(asked, url, getattr(error, "strerror", None) or type(error).__name__) from None
        if not 200 <= answer.status < 300:
            raise _refusal(answer, asked, url) from None
        if len(answer.body) > _MAX_BYTES:
            raise _UnusableError(f"{asked.what} is larger than {_MAX_BYTES} bytes")
        return _object(answer.body, asked, url)


registry_of: Callable[[Settings], Registry]
"""Return this process's registry of these settings."""
registry_of = ProcessCache(Registry).of


# ---- requests and answers


@dataclass(frozen=True, slots=True, repr=False)
class _Url:
    """The root of a registry's API.

    Attributes:
        address: The address of requests, without credentials, for errors and log lines.
        headers: The credentials that the user wrote into the URL, as headers.
    """

    address: str
    headers: Mapping[str, str]


class _AwayError(RetriableError):
    """The registry does not answer.

    Attributes:
        seconds: The pause that the registry requests (`Retry-After`).
    """

    seconds = 0.0


def _url(text: str) -> _Url:
    takes = "URLs that begin with http:// or https:// and have a valid host, port and path, separated by commas"
    try:
        parts = urlsplit(text)
        (host, _), port = place_of(parts), parts.port
    except ValueError:
        raise OptionError("schema.registry.url", HIDDEN, takes) from None
    if parts.scheme not in ("http", "https") or not re.fullmatch("[!-~]*", parts.path):
        raise OptionError("schema.registry.url", HIDDEN, takes)
    place = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return _Url(address, {} if credentials is None else {"Authorization": basic(credentials)})


def _headers(settings: Settings) -> dict[str, str]:
    """Return the headers of a login, from settings with Confluent's names."""
    sources = {
        "basic.auth.credentials.source": ("USER_INFO", "URL"),
        "bearer.auth.credentials.source": ("STATIC_TOKEN",),
    }
    for name, known in sources.items():
        source = settings.get(name, "").upper()
        if source and source not in known:
            raise OptionError(f"schema.registry.{name}", source, " or ".join(known))
    user_info, token = settings.get("basic.auth.user.info"), settings.get("bearer.auth.token")
    if user_info and token:
        problem = "Set either schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token"
        raise OptionError("schema.registry.bearer.auth.token", HIDDEN, problem=problem)
    if user_info and ":" not in user_info:
        raise OptionError("schema.registry.basic.auth.user.info", HIDDEN, "the user and the password as user:password")
    headers = {"Authorization": basic(user_info)} if user_info else {}
    # By option, the header and the text before its value.
    made = {
        "bearer.auth.token": ("Authorization", "Bearer "),
        "bearer.auth.logical.cluster": ("target-sr-cluster", ""),
        "bearer.auth.identity.pool.id": ("Confluent-Identity-Pool-Id", ""),
    }
    for name, (header, before) in made.items():
        value = settings.get(name, "")
        if not re.fullmatch(r"[ -~\xa0-\xff]*", value):
            takes = "characters of Latin-1, without line breaks and other control characters"
            raise OptionError(f"schema.registry.{name}", HIDDEN, takes)
        if value:
            headers[header] = before + value
    return headers


def _context(settings: Settings, urls: tuple[_Url, ...]) -> ssl.SSLContext | None:
    if not any(url.address.startswith("https:") for url in urls):
        return None
    try:
        return ssl_context(tls_of(settings))
    except OptionError as error:
        # The settings have the names of Kafka's clients with another prefix.
        name = error.option.replace("kafka.", "schema.registry.")
        raise OptionError(name, error.got, error.takes.replace("kafka.", "schema.registry.")) from None


def _away(asked: _Request, url: _Url, reason: str, seconds: float = 0.0) -> RetriableError:
    error = _AwayError(
        f"The schema registry {url.address} was asked to {asked.verb} {asked.what} and does not answer ({reason}). "
        "Check that the registry runs and can be reached from the driver and all executors. A task waits for "
        "schema.registry.timeout.ms."
    )
    error.seconds = seconds
    return error


def _refusal(answer: Response, asked: _Request, url: _Url) -> Exception:
    """Return the error for an answer without success."""
    status, (code, message) = answer.status, _said(answer.body)
    if status in _OVERLOADED or status >= 500:
        return _away(asked, url, f"HTTP {status}", _seconds_of(answer.headers.get("Retry-After", "")))
    if status == 404 and code in _NOT_FOUND:
        return _UnusableError(f"the schema registry {url.address} does not have {asked.what}", is_refusal=True)
    refuses = f"he schema registry {url.address} refuses to {asked.verb} {asked.what} (HTTP {status})"
    error: Exception
    if status in (401, 403):
        error = AuthenticationError(
            f"T{refuses}: check schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token, and the "
            "user's rights."
        )
    elif status in (409, 422) and message:
        error = InvalidConfigurationError(f"T{refuses}. It says: {message}")
    else:
        to = urlsplit(answer.headers.get("Location", "") if 300 <= status < 400 else "")
        advice = (
            f"it redirects to {to.scheme}://{to.hostname}, which is not followed" if to.hostname else "check its path"
        )
        error = InvalidConfigurationError(
            f"The schema registry {url.address} was asked to {asked.verb} {asked.what} and answers HTTP {status}: "
            f"{advice}. schema.registry.url takes the root of Confluent's API; Apicurio's is below /apis/ccompat/v7."
        )
    if status == 401 or status < 400:
        return error
    return _UnusableError(f"t{refuses}", is_refusal=True, error=error)


def _said(body: bytes) -> tuple[int | None, str]:
    """Return code and message of an error of Confluent's API; None and an empty text: another error."""
    try:
        answer = json.loads(body)
        code, message = answer.get("error_code"), answer.get("message")
    except (ValueError, AttributeError, RecursionError):
        return None, ""
    text = " ".join(message.split()) if isinstance(message, str) else ""
    return code if isinstance(code, int) else None, text[:_MAX_SHOWN]


def _seconds_of(retry_after: str) -> float:
    """Return the seconds of a header `Retry-After`, a number or a date; 0: neither."""
    try:
        if retry_after.strip().isdecimal():
            return float(retry_after)
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _object(body: bytes, asked: _Request, url: _Url) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(
        answer.get("schema" if asked.wants is str else "id"), asked.wants
    ):
        raise InvalidConfigurationError(
            f"The schema registry {url.address} was asked to {asked.verb} {asked.what} and answers with something that "
            "is no schema. schema.registry.url takes the root of Confluent's API; Apicurio's is below /apis/ccompat/v7."
        )
    return answer


def _path_and_name(schema_id: int | str) -> tuple[str, str]:
    kind, path = ("GUID", "guids") if isinstance(schema_id, str) else ("id", "ids")
    return f"/schemas/{path}/{schema_id}", f"the schema with {kind} {schema_id}"


def _posted(text: str, kind: str) -> bytes:
    # The type AVRO is not sent, because old registries know no types.
    return json.dumps({"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})).encode()


_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


def _put(kept: dict[_KeyT, _ValueT], key: _KeyT, value: _ValueT) -> None:
    """Keep a value; drop the oldest values if there are too many."""
    kept[key] = value
    for oldest in list(kept)[:-_MAX_KEPT]:
        del kept[oldest]


def _text_and_kind(answer: Mapping[str, Any]) -> tuple[str, str]:
    # Registries name only types other than AVRO.
    return str(answer["schema"]), str(answer.get("schemaType") or "AVRO")
