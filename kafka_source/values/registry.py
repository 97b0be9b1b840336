"""The client of a schema registry: schemas and those that they refer to, unknown ids, cache, tries, logins; registers.

Each process asks once for an id and keeps the answer. A request is repeated while the registry is not reached or is
overloaded, for as long as `schema.registry.timeout.ms`. Redirects are not followed, so credentials reach no other host.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kafka_source.client_config import HIDDEN, Settings
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, OptionError, RetriableError
from kafka_source.runtime.deadline import Deadline, call_within
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.values.references import inline_references

log = logging.getLogger(__name__)

_JSON = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_JSON}, application/json"

_PAUSES = RetryPolicy(0.5, 10.0)
# One attempt; another one may reach another server behind the same name.
_ATTEMPT_SECONDS = 10.0
_DEFAULT_TIMEOUT_MS = 60_000
_OVERLOADED = (408, 425, 429)

# A schema comes from people who can register one, and all executors read it.
_MAX_BYTES = 1 << 20
_MAX_REFERENCES = 100
_MAX_DEPTH = 16

_MAX_KEPT = 1000
# An id that the registry does not know may be registered later, or known to another of its nodes.
_UNKNOWN_SECONDS = 60.0
# How long the nodes of a registry may take to know of a schema.
_LATE_SECONDS = 1.0

# How long a sink waits for the newest schema of a subject of which it knows an earlier one.
_KNOWN_SECONDS = 2.0

# How much of a refusal is shown: it may list all fields of a large schema.
_MAX_SHOWN = 2000

# Confluent's codes: no such subject, version or schema. Another 404 comes from a wrong URL.
_NOT_FOUND = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        id: Its number in the registry, which records have in front; -1: the registry does not say it.
        text: The schema. One of Avro includes the schemas that it refers to.
        kind: The registry's word for what it is: AVRO, PROTOBUF or JSON.
        imports: The names and texts of the files that a Protobuf schema imports, or a JSON Schema refers to.
    """

    id: int
    text: str
    kind: str = "AVRO"
    imports: tuple[tuple[str, str], ...] = ()

    def check_kind(self, value_format: str) -> RegisteredSchema | Unusable:
        """Return the schema, if it is one of this format."""
        wanted = value_format.upper()
        if self.kind == wanted:
            return self
        name = "the schema" if self.id < 0 else f"the schema with id {self.id}"
        return Unusable(f"{name} is of type {self.kind}, and not {wanted}")


@dataclass(frozen=True, slots=True)
class Unusable:
    """What the registry has in place of a schema that can be used: that is the record's fault, not the registry's.

    Attributes:
        reason: Why, as a sentence without a full stop.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for a schema.

    Attributes:
        path: Its path and query.
        what: Which schema, for errors.
        verb: What the registry is to do with it, for errors.
        body: What is posted; None: it is a GET.
        wants: What the answer must have: a text or a number.
    """

    path: str
    what: str
    verb: str = "return"
    body: bytes | None = None
    wants: type[str] | type[int] = str


class _UnusableError(Exception):
    """Ends a lookup; see `Unusable`."""


class Registry:
    """One registry as this process knows it. Threads may share it.

    Args:
        settings: The settings with the prefix `schema.registry.`, without it.

    Raises:
        OptionError: A setting is missing or wrong.
    """

    def __init__(self, settings: Settings) -> None:
        # The one that is asked next comes first.
        self._urls = tuple(_url(text.strip()) for text in settings.get("url", "").split(",") if text.strip())
        if not self._urls:
            raise OptionError("schema.registry.url", None, "the URL of a schema registry, or several with commas")
        self._headers = _headers(settings)
        self._opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=_context(settings, self._urls))
        )
        self._patience = settings.seconds("timeout.ms", _DEFAULT_TIMEOUT_MS)
        # One lookup at a time: tasks of one process that meet the same id send one request.
        self._asking = threading.Lock()
        self._known: dict[int | str, RegisteredSchema] = {}
        self._unusable: dict[int | str, tuple[Unusable, float]] = {}
        self._newest: dict[str, RegisteredSchema] = {}
        # By subject and text. They never change.
        self._ids: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"Registry({', '.join(url.address for url in self._urls)})"

    def by_id(self, schema_id: int | str) -> RegisteredSchema | Unusable:
        """Return a schema, with its references.

        Args:
            schema_id: Its id, or as a text its GUID.

        Raises:
            AuthenticationError: The registry refuses the credentials.
            InvalidConfigurationError: What answers is no registry.
            RetriableError: The registry does not answer.
        """
        if schema_id in self._known:
            return self._known[schema_id]
        with self._asking:
            if schema_id in self._known:
                return self._known[schema_id]
            unusable, until = self._unusable.get(schema_id, (None, 0.0))
            if unusable is not None and time.monotonic() < until:
                return unusable
            kind, path = ("GUID", "guids") if isinstance(schema_id, str) else ("id", "ids")
            what = f"the schema with {kind} {schema_id}"
            try:
                found = self._schema(f"/schemas/{path}/{schema_id}", what, Deadline(self._patience))
            except _UnusableError as problem:
                return self._keep_unusable(schema_id, Unusable(str(problem)))
            return self._keep(schema_id, found if isinstance(schema_id, str) else replace(found, id=schema_id))

    def by_ids(self, schema_ids: Iterable[int | str]) -> dict[int | str, RegisteredSchema | Unusable]:
        """Return schemas; raises as `by_id`.

        Those that the registry does not have are asked for once more, a moment later: a producer may have registered
        its schema with another node, and a record that is taken for a bad one may be left out for good.
        """
        found: dict[int | str, RegisteredSchema | Unusable] = {}
        late = []
        for schema_id in schema_ids:
            is_new = schema_id not in self._unusable
            found[schema_id] = self.by_id(schema_id)
            if is_new and isinstance(found[schema_id], Unusable):
                late.append(schema_id)
        if late:
            time.sleep(_LATE_SECONDS)
        for schema_id in late:
            self._unusable.pop(schema_id, None)
            found[schema_id] = self.by_id(schema_id)
        return found

    def newest(self, subject: str, advice: str, *, or_known: bool = False) -> RegisteredSchema:
        """Return the newest schema of a subject; raises as `by_id`, and if there is none that can be used.

        Args:
            subject: The subject.
            advice: What users can do if it has no schema, for the error.
            or_known: Return what this method returned before if the registry does not answer now.
        """
        known = self._newest.get(subject) if or_known else None
        what, path = f"the newest schema of subject {subject}", f"/subjects/{quote(subject, safe='')}/versions/latest"
        try:
            found = self._schema(path, what, Deadline(self._patience if known is None else _KNOWN_SECONDS))
        except _UnusableError as problem:
            raise InvalidConfigurationError(f"{problem}: {advice}.") from None
        except RetriableError as away:
            if known is None:
                raise
            log.warning("%s Until it does, the newest schema of subject %s is %d.", away, subject, known.id)
            return known
        self._keep(found.id, found)
        _put(self._newest, subject, found)
        return found

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema, if the registry does not have it, and return its id.

        Args:
            subject: The subject of which it becomes a version.
            text: The schema.
            kind: The registry's word for what it is: AVRO, PROTOBUF or JSON.

        Raises:
            InvalidConfigurationError: The registry refuses it; with the registry's own words.
            AuthenticationError: The registry refuses the credentials.
            RetriableError: The registry does not answer.
        """
        what = f"the schema as a version of subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._id(subject, text, _Request(path, what, "register", _posted(text, kind), int))

    def id_of(self, subject: str, text: str, kind: str) -> int:
        """Return the id of a schema that a subject has; raises as `register`, and if it does not have it."""
        what = f"the given schema among the versions of subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}"
        return self._id(subject, text, _Request(path, what, "find", _posted(text, kind), int))

    def _id(self, subject: str, text: str, request: _Request) -> int:
        if (subject, text) not in self._ids:
            try:
                answer = self._answer(request, Deadline(self._patience))
            except _UnusableError as problem:
                advice = "register it, or set auto.register.schemas=true"
                raise InvalidConfigurationError(f"{problem}: {advice}.") from None
            _put(self._ids, (subject, text), int(answer["id"]))
        return self._ids[subject, text]

    def _keep(self, schema_id: int | str, found: RegisteredSchema) -> RegisteredSchema:
        _put(self._known, schema_id, found)
        return found

    def _keep_unusable(self, schema_id: int | str, unusable: Unusable) -> Unusable:
        _put(self._unusable, schema_id, (unusable, time.monotonic() + _UNKNOWN_SECONDS))
        return unusable

    def _schema(self, path: str, what: str, deadline: Deadline) -> RegisteredSchema:
        answer = self._answer(_Request(path, what), deadline)
        text, kind = _text_and_kind(answer, what)
        included: dict[str, str] = {}
        self._include(answer, included, deadline, _MAX_DEPTH, what)
        if included and kind == "AVRO":
            try:
                text = inline_references(text, included.values())
            except (ValueError, RecursionError) as problem:
                raise _UnusableError(f"{what} is no valid schema ({type(problem).__name__})") from None
        number = answer.get("id", -1)
        imports = () if kind == "AVRO" else tuple(included.items())
        return RegisteredSchema(number if isinstance(number, int) else -1, text, kind, imports)

    def _include(
        self, answer: Mapping[str, Any], included: dict[str, str], deadline: Deadline, depth: int, what: str
    ) -> None:
        """Fetch the schemas to which one refers, and those to which these refer."""
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
            # As Java's client: a version that is deleted still has records.
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}?deleted=true"
            target = f"version {version} of subject {subject}, to which {what} refers"
            found = self._answer(_Request(path, target), deadline)
            included[name], _ = _text_and_kind(found, target)
            self._include(found, included, deadline, depth - 1, what)

    def _answer(self, asked: _Request, deadline: Deadline) -> dict[str, Any]:
        """Return the answer to a request, an object of JSON."""

        def attempt() -> dict[str, Any]:
            url = self._urls[0]
            seconds = min(_ATTEMPT_SECONDS, max(deadline.left, 1.0))
            try:
                return call_within(Deadline(seconds), partial(self._ask, url, asked, seconds))
            except (TimeoutError, RetriableError) as problem:
                # Other requests do not wait for it either, before the others of several URLs have failed as well.
                self._urls = (*(one for one in self._urls if one is not url), url)
                if isinstance(problem, RetriableError):
                    raise
                raise _away(asked, url, f"no answer within {seconds:.0f} s") from None

        def again(error: Exception, failures: int, pause: float) -> bool:
            log.log(logging.INFO if failures else logging.WARNING, "%s Trying again in %.1f s.", error, pause)
            return True

        return retry(attempt, _PAUSES, on=RetriableError, deadline=deadline, again=again)

    def _ask(self, url: _Url, asked: _Request, seconds: float) -> dict[str, Any]:
        request = urllib.request.Request(url.address + asked.path, asked.body, {"Accept": _ACCEPT})
        if asked.body is not None:
            request.add_header("Content-Type", _JSON)
        for name, value in {**self._headers, **url.headers}.items():
            request.add_unredirected_header(name, value)
        try:
            with self._opener.open(request, timeout=seconds) as response:
                body = response.read(_MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, asked, url) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise AuthenticationError(
                    f"The certificate of the schema registry {url.address} is not trusted "
                    f"({reason.verify_message}): set schema.registry.ssl.ca.location."
                ) from None
            raise _away(asked, url, getattr(reason, "strerror", None) or type(reason).__name__) from None
        except ValueError:
            # Its text may have the value of a header.
            problem = "credentials without line breaks and other control characters"
            raise OptionError("schema.registry.basic.auth.user.info", HIDDEN, problem) from None
        if len(body) > _MAX_BYTES:
            raise _UnusableError(f"{asked.what} is larger than {_MAX_BYTES} bytes")
        return _object(body, asked, url)


registry_of: Callable[[Settings], Registry]
"""Return the registry of these settings as this process knows it."""
registry_of = ProcessCache(Registry).of


# ---- requests and answers


@dataclass(frozen=True, slots=True, repr=False)
class _Url:
    """The root of a registry's API.

    Attributes:
        address: Where requests go, without credentials, so errors and log lines show it.
        headers: The credentials that the user wrote into the URL, as headers.
    """

    address: str
    headers: Mapping[str, str]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow none: it becomes an error of its status."""


def _url(text: str) -> _Url:
    takes = "URLs that begin with http:// or https://, separated by commas"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise OptionError("schema.registry.url", HIDDEN, takes) from None
    if parts.scheme not in ("http", "https") or not host:
        raise OptionError("schema.registry.url", HIDDEN, takes)
    place = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return _Url(address, {} if credentials is None else _basic(credentials))


def _headers(settings: Settings) -> dict[str, str]:
    """Return the headers of a login, in Confluent's settings."""
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
    headers = _basic(user_info) if user_info else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    # Confluent Cloud's.
    names = {
        "bearer.auth.logical.cluster": "target-sr-cluster",
        "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
    }
    return headers | {header: settings[name] for name, header in names.items() if settings.get(name)}


def _basic(user_info: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(user_info.encode()).decode()}


def _context(settings: Settings, urls: tuple[_Url, ...]) -> ssl.SSLContext | None:
    if not any(url.address.startswith("https:") for url in urls):
        return None
    try:
        return ssl_context(tls_of(settings))
    except OptionError as error:
        # The settings have the names of the Kafka clients' and another prefix.
        name = error.option.replace("kafka.", "schema.registry.")
        raise OptionError(name, error.got, error.takes.replace("kafka.", "schema.registry.")) from None


def _away(asked: _Request, url: _Url, reason: str) -> RetriableError:
    return RetriableError(
        f"The schema registry {url.address} was asked to {asked.verb} {asked.what} and does not answer ({reason}). "
        "Check that it runs and is reached from the driver and from all executors; schema.registry.timeout.ms says how "
        "long a task waits."
    )


def _refusal(error: urllib.error.HTTPError, asked: _Request, url: _Url) -> Exception:
    """Return what to raise for an answer that is no success."""
    status, (code, message) = error.code, _said(error)
    if status in (401, 403):
        return AuthenticationError(
            f"The schema registry {url.address} refuses to {asked.verb} {asked.what} (HTTP {status}): check "
            "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token, and the user's rights."
        )
    if status == 404 and code in _NOT_FOUND:
        return _UnusableError(f"the schema registry {url.address} does not have {asked.what}")
    if status in _OVERLOADED or status >= 500:
        return _away(asked, url, f"HTTP {status}")
    if status in (409, 422) and message:
        return InvalidConfigurationError(
            f"The schema registry {url.address} refuses to {asked.verb} {asked.what} (HTTP {status}). It says: "
            f"{message}"
        )
    to = urlsplit(error.headers.get("Location", "") if 300 <= status < 400 else "")
    advice = f"it redirects to {to.scheme}://{to.hostname}, which is not followed" if to.hostname else "check its path"
    return InvalidConfigurationError(
        f"The schema registry {url.address} was asked to {asked.verb} {asked.what} and answers HTTP {status}: "
        f"{advice}. schema.registry.url takes the root of Confluent's API; Apicurio's is below /apis/ccompat/v7."
    )


def _said(error: urllib.error.HTTPError) -> tuple[int | None, str]:
    """Return the code and the message of an error as Confluent's API has them; None and an empty text: no such."""
    try:
        answer = json.loads(error.read(_MAX_BYTES))
        code, message = answer.get("error_code"), answer.get("message")
    except (OSError, ValueError, AttributeError, RecursionError, http.client.HTTPException):
        return None, ""
    text = " ".join(message.split()) if isinstance(message, str) else ""
    return code if isinstance(code, int) else None, text[:_MAX_SHOWN]


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


def _posted(text: str, kind: str) -> bytes:
    # Old registries know no types.
    return json.dumps({"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})).encode()


_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


def _put(kept: dict[_KeyT, _ValueT], key: _KeyT, value: _ValueT) -> None:
    """Keep a value; forget the oldest ones where there are too many."""
    kept[key] = value
    for oldest in list(kept)[:-_MAX_KEPT]:
        del kept[oldest]


def _text_and_kind(answer: Mapping[str, Any], what: str) -> tuple[str, str]:
    # Only other types are named; old registries know none.
    return str(answer["schema"]), str(answer.get("schemaType") or "AVRO")
