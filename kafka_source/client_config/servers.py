"""Parse the hosts and ports of `bootstrap.servers`."""

import re
from dataclasses import dataclass

from kafka_source.client_config.settings import shown
from kafka_source.errors import OptionError

_DEFAULT_PORT = 9092
_PORT = re.compile("[0-9]{1,5}")
_MAX_PORT = 65_535
# Consoles show `SASL_SSL://host:9092`. As in Java's Utils.getHost the protocol is ignored; security.protocol decides.
_PROTOCOL = re.compile(r"[0-9a-zA-Z\-%._]*://")
_HOST = re.compile(r"[^\s/;,\[\]@?#]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(servers: str) -> tuple[Endpoint, ...]:
    """Return the endpoints in a list such as `host:port,[v6::address]:port`.

    Raises:
        OptionError: The list is empty, or an endpoint is malformed.
    """
    got = shown("bootstrap.servers", servers) or None
    malformed = OptionError("kafka.bootstrap.servers", got, "host:port, several separated by commas")
    found = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        protocol = _PROTOCOL.match(server)
        address = server[protocol.end() :] if protocol else server
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(_DEFAULT_PORT)
        host = host[1:-1] if host[:1] + host[-1:] == "[]" else host
        # Check the port, because for port 99999 the operating system would connect to port 34463.
        if not _PORT.fullmatch(port) or int(port) > _MAX_PORT or not _HOST.fullmatch(host):
            raise malformed
        found.append(Endpoint(host, int(port)))
    if not found:
        raise malformed
    return tuple(found)
