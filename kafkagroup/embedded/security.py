"""Authentication, encryption and ACLs of the client listener, as settings of brokers and clients.

The inter-broker listener, which also serves admin calls, is PLAINTEXT on loopback, with ANONYMOUS as a super user.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kafkagroup.embedded.java import JavaError
from kafkagroup.embedded.server_config import CLIENT, protocol_map

Protocol = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

PROTOCOLS: tuple[Protocol, ...] = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class Security:
    """The security of an embedded Kafka's client listener.

    Args:
        protocol: The security protocol of the client listener.
        users: Passwords by user name, valid for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. A SASL protocol requires users.
        acls: Allow only operations for which `EmbeddedKafka.allow` was called. ACLs require a SASL protocol.

    Raises:
        ValueError: The protocol is unknown, or does not fit the users or `acls`.
    """

    protocol: Protocol = "PLAINTEXT"
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    acls: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")
        if self.sasl != bool(self.users):
            advice = "needs users" if self.sasl else "takes no users, use a SASL protocol"
            raise ValueError(f"{self.protocol} {advice}")
        if self.acls and not self.sasl:
            raise ValueError(f"acls need a SASL protocol: with {self.protocol} every client is ANONYMOUS")

    @property
    def sasl(self) -> bool:
        """Return whether clients authenticate with SASL."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """Return whether connections are encrypted with TLS."""
        return self.protocol.endswith("SSL")


def broker_settings(security: Security, tls: TlsFiles | None) -> dict[str, str]:
    """Return the broker settings for the client listener and the authorizer.

    Secrets are only in settings of Kafka's type PASSWORD, which the broker does not write to its log.
    """
    settings = {"listener.security.protocol.map": protocol_map(security.protocol)}
    listener = f"listener.name.{CLIENT.lower()}"
    if security.sasl:
        settings[f"{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism in MECHANISMS:
            known = security.users.items() if mechanism == "PLAIN" else ()
            options = "".join(f" user_{name}={_quoted(password)}" for name, password in known)
            settings[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[mechanism]} required{options};"
            )
    if tls is not None:
        settings[f"{listener}.ssl.keystore.type"] = "PKCS12"
        settings[f"{listener}.ssl.keystore.location"] = str(tls.keystore)
        settings[f"{listener}.ssl.keystore.password"] = tls.keystore_password
        settings[f"{listener}.ssl.key.password"] = tls.keystore_password
    if security.acls:
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = "User:ANONYMOUS"
    return settings


def client_settings(security: Security, tls: TlsFiles | None, user: str | None, mechanism: Mechanism) -> dict[str, str]:
    """Return a client's security settings in librdkafka's names, without `bootstrap.servers`.

    Raises:
        ValueError: The user or mechanism is unknown, or a user was given and the protocol has no users.
    """
    settings: dict[str, str] = {"security.protocol": security.protocol}
    if security.sasl:
        name, password = _credentials(security, user, mechanism)
        settings |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    elif user is not None:
        raise ValueError(f"{security.protocol} takes no users, got {user!r}")
    if tls is not None:
        settings["ssl.ca.location"] = str(tls.certificate)
    return settings


def java_client_settings(
    security: Security, tls: TlsFiles | None, user: str | None, mechanism: Mechanism
) -> dict[str, str]:
    """Return a client's security settings in the names of Java's client, without `bootstrap.servers`.

    Raises:
        ValueError: The user or mechanism is unknown, or a user was given and the protocol has no users.
    """
    settings = client_settings(security, tls, user, mechanism)
    if security.sasl:
        name, password = settings.pop("sasl.username"), settings.pop("sasl.password")
        settings["sasl.jaas.config"] = (
            f"{_LOGIN_MODULES[mechanism]} required username={_quoted(name)} password={_quoted(password)};"
        )
    if "ssl.ca.location" in settings:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = settings.pop("ssl.ca.location")
    return settings


def _credentials(security: Security, user: str | None, mechanism: str) -> tuple[str, str]:
    if mechanism not in MECHANISMS:
        raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}")
    name = next(iter(security.users)) if user is None else user
    if name not in security.users:
        raise ValueError(f"There is no user {name!r}; the users are {', '.join(security.users)}")
    return name, security.users[name]


def _quoted(text: str) -> str:
    """Quote and escape a value for a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_PASSWORD_VARIABLE = "KAFKAGROUP_KEYSTORE_PASSWORD"  # noqa: S105


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The brokers' key and certificate (`keystore`, PKCS12), and the certificate that clients trust (PEM)."""

    keystore: Path
    certificate: Path
    keystore_password: str = field(repr=False)


def make_tls_files(java: Path, folder: Path) -> TlsFiles:
    """Create a key with a self-signed certificate for `localhost` and 127.0.0.1, valid for a year.

    Args:
        java: The `java` executable; `keytool` is taken from the same folder, else from the PATH.
        folder: The folder for the files.

    Raises:
        JavaError: keytool was not found or failed.
    """
    keytool = _keytool(java)
    files = TlsFiles(folder / "broker.p12", folder / "ca.pem", secrets.token_urlsafe(24))
    files.keystore.unlink(missing_ok=True)
    store = ("-keystore", str(files.keystore), "-storetype", "PKCS12", "-storepass:env", _PASSWORD_VARIABLE)
    key = ("-genkeypair", "-alias", "broker", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365")
    names = ("-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1")
    authority = ("-ext", "BasicConstraints:critical=ca:true")
    _run([str(keytool), *key, *names, *authority, *store], files.keystore_password)
    files.keystore.chmod(0o600)
    export = ("-exportcert", "-rfc", "-alias", "broker", "-file", str(files.certificate))
    _run([str(keytool), *export, *store], files.keystore_password)
    return files


def _keytool(java: Path) -> Path:
    beside = java.resolve().with_name("keytool")
    found = str(beside) if beside.is_file() else shutil.which("keytool")
    if found is None:
        raise JavaError(
            f"TLS needs keytool, which was not found beside {java} or on the PATH. Install a full JDK or JRE, "
            "and point JAVA_HOME to the folder that contains bin/keytool."
        )
    return Path(found)


def _run(command: list[str], password: str) -> None:
    # The password is in the environment, because every user of the machine can see a process's arguments.
    environment = {**os.environ, _PASSWORD_VARIABLE: password}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode != 0:
        raise JavaError(f"keytool failed: {(result.stdout + result.stderr).strip()}")
