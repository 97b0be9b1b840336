"""Kerberos: the native engine logs in with a keytab, against a KDC and a broker of the test's own."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka, Security
from kafkagroup.embedded.tools import QUICK_START
from tests.apps.process import streaming_app
from tests.support.records import produce, written
from tests.support.waiting import wait_until

Login = Callable[[str, Path], dict[str, str]]

REALM = "KAFKAGROUP.TEST"
LOGIN = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"

pytestmark = [
    pytest.mark.requires_native,
    pytest.mark.skipif(shutil.which("krb5kdc") is None, reason="no KDC is installed (Debian: krb5-kdc)"),
    pytest.mark.skipif(importlib.util.find_spec("gssapi") is None, reason="the extra kerberos is not installed"),
]


@dataclass(frozen=True)
class Kdc:
    """A running KDC: its folder, and the configuration that clients need in KRB5_CONFIG."""

    folder: Path
    config: Path
    environment: dict[str, str]

    def keytab(self, principal: str) -> Path:
        """Make a principal, and return a file with its keys."""
        path = self.folder / (principal.replace("/", "-") + ".keytab")
        self.admin(f"addprinc -randkey {principal}")
        self.admin(f"ktadd -k {path} {principal}")
        return path

    def admin(self, query: str) -> None:
        _run("kadmin.local", "-r", REALM, "-q", query, environment=self.environment)


def _run(*command: str, environment: dict[str, str]) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC on loopback."""
    folder = tmp_path_factory.mktemp("kdc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "krb5.conf"
    config.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = {place}\n }}\n[domain_realm]\n 127.0.0.1 = {REALM}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
        f"  kdc_listen = {place}\n  kdc_tcp_listen = {place}\n  max_life = 1h\n }}\n"
    )
    environment = {"KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
    _run("kdb5_util", "-r", REALM, "create", "-s", "-P", "of this test only", environment=environment)
    with (folder / "kdc.log").open("wb") as log:
        running = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM], env={**os.environ, **environment}, stdout=log, stderr=log
        )
    try:
        host, port = place.split(":")
        wait_until(lambda: _answers(host, int(port)), "the KDC", 30)
        yield Kdc(folder, config, environment)
    finally:
        running.terminate()
        running.wait(10)


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def kerberized(kdc: Kdc) -> Iterator[EmbeddedKafka]:
    """A broker that takes tickets, and passwords from the test's own producer."""
    keytab = kdc.keytab("kafka/127.0.0.1")
    listener = "listener.name.client"
    config = {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
        f"{listener}.gssapi.sasl.jaas.config": f'{LOGIN} keyTab="{keytab}" principal="kafka/127.0.0.1@{REALM}";',
        "sasl.kerberos.service.name": "kafka",
    }
    security = Security("SASL_PLAINTEXT", {"producer": "of this test only"})
    jvm = (*QUICK_START, f"-Djava.security.krb5.conf={kdc.config}")
    with EmbeddedKafka(config=config, security=security, jvm_options=jvm) as kafka:
        yield kafka


@pytest.fixture
def login(kdc: Kdc, kerberized: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> Login:
    """The settings of a client with a principal and a keytab, in Java's words."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))

    def settings(principal: str, keytab: Path) -> dict[str, str]:
        return {
            "bootstrap.servers": kerberized.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f'{LOGIN} keyTab="{keytab}" principal="{principal}@{REALM}";',
        }

    return settings


def test_a_stream_in_a_group_logs_in_with_a_keytab(
    kdc: Kdc, kerberized: EmbeddedKafka, login: Login, tmp_path: Path
) -> None:
    name = kerberized.create_topic("kerberized", 2)
    produce(kerberized.bootstrap_servers, name, 100, config=kerberized.client_config())
    options = {f"kafka.{key}": value for key, value in login("reader", kdc.keytab("reader")).items()}
    options |= {"subscribe": name, "startingOffsets": "earliest", "kafka.group.id": "kerberized", "engine": "native"}
    with streaming_app(tmp_path, options) as app:
        wait_until(lambda: written(tmp_path / "out") == list(range(100)), "all records")
        app.stop()


def test_a_keytab_of_another_principal_is_refused_without_its_path(kdc: Kdc, login: Login) -> None:
    keytab = kdc.keytab("somebody")
    groups = Groups(Settings(login("somebody-else", keytab)))
    with pytest.raises(AuthenticationError, match="GSSAPI cannot be used") as caught:
        groups.states()
    assert str(keytab) not in str(caught.value)
    assert Groups(Settings(login("somebody", keytab))).states() is not None
