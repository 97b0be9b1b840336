"""HTTP requests to a few hosts, over one kept connection for each host, through the environment's proxy.

Redirects are not followed. A request ends at its time limit, even if the server sends a byte now and then.
"""

import base64
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from functools import partial
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kafka_source.errors import InvalidConfigurationError
from kafka_source.runtime.deadline import Deadline, call_within


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: status, headers, and the beginning of the body."""

    status: int
    headers: Message
    body: bytes


class Connections:
    """Idle connections for later requests. Threads may share this object; a connection serves one request at a time.

    Args:
        context: The TLS context of connections.
        max_bytes: The maximum number of bytes to read of a response's body.
    """

    def __init__(self, context: ssl.SSLContext | None, max_bytes: int) -> None:
        self._context, self._max_bytes = context, max_bytes
        # By scheme, host and port.
        self._idle: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self._lock = threading.Lock()

    def __del__(self) -> None:
        for connection in self._idle.values():
            connection.close()

    def request(self, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float) -> Response:
        """Return the answer to a GET, or with a body to a POST.

        Raises:
            TimeoutError: There is no response in time.
            OSError: The server cannot be reached, or ends the connection.
            http.client.HTTPException: The response is no HTTP.
            InvalidConfigurationError: The environment's proxy has no valid URL.
        """
        scheme, host, *_ = urlsplit(url)
        deadline = Deadline(seconds)
        with self._lock:
            kept = self._idle.pop((scheme, host), None)
        if kept is not None:
            # The server may have closed the idle connection. Then the request is repeated, which is safe here.
            with suppress(ConnectionError, http.client.BadStatusLine, ssl.SSLError):
                return self._exchange(kept, url, body, headers, deadline)
        return self._exchange(self._connection(url), url, body, headers, deadline)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: Deadline,
    ) -> Response:
        connection.timeout = deadline.left
        if connection.sock is not None:
            connection.sock.settimeout(deadline.left)
        try:
            answer = call_within(deadline, partial(self._answer, connection, url, body, headers))
        except BaseException:
            # This ends the thread of a call that was abandoned.
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            raise
        if connection.sock is not None:
            scheme, host, *_ = urlsplit(url)
            with self._lock:
                unused = self._idle.pop((scheme, host), None)
                self._idle[scheme, host] = connection
            if unused is not None:
                unused.close()
        return answer

    def _answer(
        self, connection: http.client.HTTPConnection, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        parts = urlsplit(url)
        through_proxy = parts.scheme == "http" and (connection.host, connection.port) != place_of(parts)
        target = url if through_proxy else url.removeprefix(f"{parts.scheme}://{parts.netloc}")
        more = _proxy_login(parts.scheme) if through_proxy else {}
        connection.request("GET" if body is None else "POST", target, body, {**headers, **more})
        response = connection.getresponse()
        found = Response(response.status, response.headers, response.read(self._max_bytes))
        if not response.isclosed():
            connection.close()
        return found

    def _connection(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        proxy = _proxy(parts.scheme)
        if proxy is not None and proxy_bypass(str(parts.hostname)):
            proxy = None
        to = place_of(parts if proxy is None else proxy)
        if parts.scheme == "http":
            return http.client.HTTPConnection(*to)
        connection = http.client.HTTPSConnection(*to, context=self._context)
        if proxy is not None:
            connection.set_tunnel(*place_of(parts), _proxy_login(parts.scheme))
        return connection


def place_of(parts: SplitResult) -> tuple[str, int]:
    """Return host and port of a URL.

    Raises:
        ValueError: They are not valid. The error may contain secrets.
    """
    host = (parts.hostname or "").encode("idna").decode()
    if not re.fullmatch("[!-~]+", host):
        raise ValueError(host)
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def _proxy(scheme: str) -> SplitResult | None:
    text = getproxies().get(scheme)
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        place_of(parts)
    except ValueError:
        raise InvalidConfigurationError(
            f"The environment variable {scheme}_proxy has no valid URL of a proxy, such as http://proxy:3128."
        ) from None
    return parts


def _proxy_login(scheme: str) -> dict[str, str]:
    proxy = _proxy(scheme)
    if proxy is None or proxy.username is None:
        return {}
    return {"Proxy-Authorization": basic(f"{unquote(proxy.username)}:{unquote(proxy.password or '')}")}


def basic(user_info: str) -> str:
    """Return the header of a login with user and password."""
    return "Basic " + base64.b64encode(user_info.encode()).decode()
