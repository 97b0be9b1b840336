"""What goes over the wire between fetchers and a broker, as a proxy sees it: bytes and when."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy

FETCH = 1


@dataclass
class Wire:
    """The fetch responses to one client that went through the proxies: when, and how large.

    Tasks of a stopped query may still fetch, so each query has its own client id.
    """

    seen: list[tuple[float, int]] = field(default_factory=list)
    _client: str = ""
    _asked: dict[tuple[int, int, int], str] = field(default_factory=dict)

    def watch(self, client: str) -> None:
        """Forget all responses, and keep the responses to this client from now on."""
        self._client = client
        self.seen.clear()

    def on_request(self, node: int, frame: Frame) -> list[bytes]:
        if frame.api_key == FETCH:
            (length,) = struct.unpack_from(">h", frame.payload, 8)
            place = (node, frame.connection, frame.correlation_id)
            self._asked[place] = frame.payload[10 : 10 + length].decode()
        return [frame.payload]

    def on_response(self, node: int, frame: Frame) -> list[bytes]:
        if frame.api_key == FETCH:
            client = self._asked.pop((node, frame.connection, frame.correlation_id), "")
            if client == self._client:
                self.seen.append((time.monotonic(), len(frame.payload) + 4))
        return [frame.payload]

    def rates(self, begin: float, end: float, seconds: float = 5.0, step: float = 0.5) -> list[float]:
        """Bytes a second in every `seconds` long piece of [begin, end)."""
        found = []
        at = begin
        while at + seconds <= end:
            found.append(sum(size for when, size in self.seen if at <= when < at + seconds) / seconds)
            at += step
        return found


@contextmanager
def watched_kafka(wire: Wire, nodes: int = 1, **config: object) -> Iterator[EmbeddedKafka]:
    """A cluster whose clients go through proxies that tell `wire` what passes."""
    proxies = {node: TcpProxy() for node in range(1, nodes + 1)}
    with ExitStack() as stack:
        for node, proxy in proxies.items():
            stack.enter_context(proxy)
            proxy.on_request, proxy.on_response = partial(wire.on_request, node), partial(wire.on_response, node)
        kafka = EmbeddedKafka(nodes, advertised_ports={n: p.port for n, p in proxies.items()}, config=config)
        stack.enter_context(kafka)
        for node, proxy in proxies.items():
            proxy.connect_to(kafka.port(node))
        yield kafka
