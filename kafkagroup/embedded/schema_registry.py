"""A schema registry on this machine, for demos and tests: Apicurio Registry, which also has Confluent's API."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from kafkagroup.embedded.jars import Progress, unpacked
from kafkagroup.embedded.java import BrokerError, find_java
from kafkagroup.embedded.node import Node, NodeFiles
from kafkagroup.embedded.server_config import LOOPBACK, free_ports
from kafkagroup.embedded.tools import QUICK_START

_VERSION = "2.6.13.Final"
_JSON = "application/vnd.schemaregistry.v1+json"
# A proxy of the environment cannot reach this machine's loopback address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class SchemaRegistry:
    """A schema registry in its own process. The registry loses its schemas when it stops.

    Use the class as a context manager. If the process that started the registry ends, even by SIGKILL, the registry
    stops.

    Args:
        port: The port on the loopback address; None: any free port.
        start_timeout: Seconds within which the registry must have started.
        on_progress: Called with each line about the download (142 MB, once). The lines are also logged at INFO.
    """

    def __init__(
        self, port: int | None = None, *, start_timeout: float = 60.0, on_progress: Progress | None = None
    ) -> None:
        self._port, self._start_timeout, self._on_progress = port, start_timeout, on_progress
        self._node: Node | None = None
        self._folder: Path | None = None

    def __repr__(self) -> str:
        return f"SchemaRegistry(port={self._port})"

    @property
    def url(self) -> str:
        """Return the URL for the option `schema.registry.url`.

        Raises:
            BrokerError: The registry is not started.
        """
        if self._node is None:
            raise BrokerError("The schema registry is not started: call start(), or use a with statement.")
        return f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"

    def start(self) -> SchemaRegistry:
        """Start the registry, and wait until it answers.

        Raises:
            JavaError: No usable Java was found.
            JarsError: The registry is not in the cache and could not be downloaded.
            BrokerError: The registry is already started, or did not start (with the end of the registry's log).
        """
        if self._node is not None:
            raise BrokerError("This schema registry is already started. Use the running registry, or stop it first.")
        java = find_java()
        app = unpacked(f"io.apicurio:apicurio-registry-app:{_VERSION}", "all", on_progress=self._on_progress)
        if self._port is None:
            (self._port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="kafkagroup-registry-"))
        command = [
            *(str(java), "-Xmx256m", *QUICK_START),
            *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self._port}"),
            *("-jar", str(app / f"apicurio-registry-app-{_VERSION}-runner.jar")),
        ]
        self._node = Node(0, NodeFiles(self._folder), command, self._folder)
        try:
            self._node.spawn()
            self._wait_until_it_answers(self._node)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the registry, which loses its schemas."""
        if self._node is not None:
            self._node.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._node = self._folder = None

    def pause(self) -> None:
        """Pause the registry (SIGSTOP): connections stay open, but the registry does not answer.

        Raises:
            BrokerError: The registry is not running.
        """
        self._running().pause()

    def resume(self) -> None:
        """Continue a paused registry (SIGCONT).

        Raises:
            BrokerError: The registry is not running.
        """
        self._running().resume()

    def register(
        self, subject: str, schema: object, *, references: Sequence[Mapping[str, object]] = (), kind: str = "AVRO"
    ) -> int:
        """Register a schema as the newest version of a subject, and return its id.

        Args:
            subject: The subject, for example `orders-value`.
            schema: The schema, as JSON text or as an argument of `json.dumps`.
            references: The names, subjects and versions of the schemas to which the schema refers.
            kind: The schema's type in Confluent's API, for example `PROTOBUF`.

        Raises:
            BrokerError: The registry refuses the schema.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        request = urllib.request.Request(
            f"{self.url}/subjects/{quote(subject, safe='')}/versions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": _JSON, "Accept": _JSON},
        )
        try:
            with _OPENER.open(request, timeout=30) as answer:
                return int(json.load(answer)["id"])
        except urllib.error.HTTPError as error:
            raise BrokerError(f"The registry refuses a schema of {subject}: {error.read().decode()[:500]}") from None

    def __enter__(self) -> SchemaRegistry:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> Node:
        if self._node is None:
            raise BrokerError("The schema registry is not started.")
        return self._node

    def _wait_until_it_answers(self, node: Node) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            try:
                with _OPENER.open(f"{self.url}/subjects", timeout=5):
                    return
            except OSError:
                if not node.running or time.monotonic() > deadline:
                    raise BrokerError(
                        f"The schema registry did not start. The end of the registry's log:\n{node.log_tail()}"
                    ) from None
            time.sleep(0.1)
