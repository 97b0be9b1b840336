"""Connect to the first address of a host name that answers (RFC 8305, "happy eyeballs"), with blocking sockets.

An address that is behind a firewall, or that belongs to a dead machine, does not answer, and could use up the whole
time limit. So the client tries the next address after a short delay, while attempts for earlier addresses continue.
"""

import errno
import ipaddress
import itertools
import os
import selectors
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple

DELAY_SECONDS = 0.25
"""The delay before the next address is tried, as RFC 8305 recommends; the event loop's connections use it too."""


class Address(NamedTuple):
    """One address of a host name, as arguments of `socket.socket` and `connect`."""

    family: int
    place: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def is_address(host: str) -> bool:
    """Return whether this is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def connect_first(host: str, port: int, seconds: float) -> socket.socket:
    """Return a socket connected to the first address of `host` that answers; its timeout is the remaining time.

    Args:
        host: A name or an address.
        port: The port.
        seconds: The time limit for all addresses together. The resolver has a time limit of its own.

    Raises:
        OSError: The name cannot be resolved, or no address answers (with the error of the last address).
    """
    end = time.monotonic() + seconds
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    waiting = interleaved(Address(family, place) for family, _, _, _, place in resolved)
    failure = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    with _Attempts() as attempts:
        while waiting or attempts.running:
            left = end - time.monotonic()
            if left <= 0:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            try:
                if waiting:
                    attempts.begin(waiting.pop(0))
                connected = attempts.first_of(min(left, DELAY_SECONDS) if waiting else left)
            except OSError as error:
                failure = error
                continue
            if connected is not None:
                connected.settimeout(max(0.001, end - time.monotonic()))
                return connected
    raise failure


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """Return the addresses with IPv4 and IPv6 in turns, the first address first; each family keeps its order."""
    families: dict[int, list[Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    turns = itertools.zip_longest(*families.values())
    return [address for turn in turns for address in turn if address is not None]


class _Attempts:
    """Sockets that connect at the same time; at the end only the first connected socket stays open."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.running: set[socket.socket] = set()

    def __enter__(self) -> "_Attempts":
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for loser in self.running:
            loser.close()

    def begin(self, address: Address) -> None:
        """Begin to connect to an address; raises OSError if the address refuses immediately."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        self.running.add(sock)
        sock.setblocking(False)
        code = sock.connect_ex(address.place)
        if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self._selector.register(sock, selectors.EVENT_WRITE)
        else:
            self._give_up(sock, code)

    def first_of(self, seconds: float) -> socket.socket | None:
        """Return a connected socket, or None after `seconds`; raise OSError if a socket cannot be connected."""
        ready = {key.fileobj for key, _ in self._selector.select(seconds)}
        for sock in self.running & ready:
            self._selector.unregister(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._give_up(sock, code)
            self.running.remove(sock)
            return sock
        return None

    def _give_up(self, sock: socket.socket, code: int) -> None:
        self.running.remove(sock)
        sock.close()
        raise OSError(code, os.strerror(code))
