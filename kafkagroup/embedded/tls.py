"""Creates a self-signed certificate for the brokers with Java's keytool."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from kafkagroup.embedded.errors import JavaError

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
        JavaError: There is no keytool, or it failed.
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
            f"There is no keytool beside {java} or on the PATH. TLS needs it: install a full JDK or JRE, "
            "and point JAVA_HOME to its folder."
        )
    return Path(found)


def _run(command: list[str], password: str) -> None:
    # The password is passed in the environment, because every user of the machine can see a process's arguments.
    environment = {**os.environ, _PASSWORD_VARIABLE: password}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode != 0:
        raise JavaError(f"keytool failed: {(result.stdout + result.stderr).strip()}")
