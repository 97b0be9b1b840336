"""Free loopback ports that stay free."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"

# Below the ephemeral ranges (Linux from 32768, macOS from 49152): an ephemeral port of a stopped broker can be taken
# by any outgoing connection, even by a client that connects to itself while it looks for that broker.
_LOWEST, _HIGHEST = 15000, 32000


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports that nobody listens on."""
    choices = random.SystemRandom()
    found: set[int] = set()
    for _ in range(2000):
        if len(found) == count:
            return sorted(found)
        port = choices.randrange(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.add(port)
    raise OSError(f"No {count} free ports between {_LOWEST} and {_HIGHEST} on {LOOPBACK}")


def is_free(port: int) -> bool:
    """Whether a listener could be bound to this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
