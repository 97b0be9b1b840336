"""Toxiproxy, a TCP proxy with delay and bandwidth: build it with Go, run it, set the distance.

https://github.com/Shopify/toxiproxy
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from kafkagroup.embedded.server_config import LOOPBACK, free_ports

_MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server"
_VERSION = "v2.12.0"
_START_SECONDS = 10.0


class Proxy:
    """One listener of a running toxiproxy.

    Attributes:
        port: The port for clients.
    """

    def __init__(self, api: int, port: int, target: int) -> None:
        self.port = port
        self._api = f"http://{LOOPBACK}:{api}/proxies"
        _call(self._api, {"name": "broker", "listen": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{target}"})

    def be(self, *, round_trip_ms: int = 0, megabits: int | None = None) -> None:
        """Set the distance: half of the round trip in each direction, and each connection's Mbit/s towards clients."""
        for name in ("there", "back", "width"):
            with contextlib.suppress(OSError):
                _call(f"{self._api}/broker/toxics/{name}", method="DELETE")
        for name, stream in (("there", "upstream"), ("back", "downstream")):
            if round_trip_ms:
                self._add(name, stream, "latency", latency=round_trip_ms // 2)
        if megabits is not None:
            self._add("width", "downstream", "bandwidth", rate=megabits * 1000 // 8)

    def _add(self, name: str, stream: str, kind: str, **attributes: int) -> None:
        _call(f"{self._api}/broker/toxics", {"name": name, "type": kind, "stream": stream, "attributes": attributes})


@contextlib.contextmanager
def toxiproxy() -> Iterator[int]:
    """Run toxiproxy and return the port of its API.

    Raises:
        SystemExit: There is no `go`, or it cannot build toxiproxy.
    """
    (port,) = free_ports(1)
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [str(_built()), "-host", LOOPBACK, "-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while True:
                try:
                    _call(f"http://{LOOPBACK}:{port}/version")
                    break
                except OSError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def _built() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkagroup" / "toxiproxy" / _VERSION
    binary = folder / "server"
    if not binary.exists():
        if shutil.which("go") is None:
            raise SystemExit("This benchmark builds its proxy with Go: put `go` on the PATH.")
        built = subprocess.run(
            ["go", "install", f"{_MODULE}@{_VERSION}"], env=os.environ | {"GOBIN": str(folder)}, check=False
        )
        if built.returncode:
            raise SystemExit(f"go cannot build {_MODULE}@{_VERSION}, see above.")
    return binary


def _call(url: str, body: object = None, method: str | None = None) -> None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"User-Agent": "kafkagroup"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        response.read()
