"""Finds free loopback ports that the operating system does not assign to outgoing connections."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"

# Below the ephemeral ranges (Linux from 32768, macOS from 49152). Any outgoing connection may take an ephemeral port
# while the broker that uses it is stopped. A client that tries to reach the broker can even connect to itself.
_LOWEST, _HIGHEST = 15000, 32000


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports on which no process listens, ascending.

    Raises:
        OSError: Too few free ports were found.
    """
    choices = random.SystemRandom()
    found: set[int] = set()
    for _ in range(2000):
        if len(found) == count:
            return sorted(found)
        port = choices.randrange(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.add(port)
    raise OSError(
        f"Found only {len(found)} of {count} free ports between {_LOWEST} and {_HIGHEST} on {LOOPBACK}; "
        "stop processes that listen there"
    )


def is_free(port: int) -> bool:
    """Return whether a listener can be bound to this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
