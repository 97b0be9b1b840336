"""PKCS12 stores, which are Java's own kind since version 9, as the PEM text that both client libraries take.

This module alone needs the extra `pkcs12` (the library cryptography).
"""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12


def certificates(store: bytes, password: str) -> str:
    """The certificates of a trust store.

    Raises:
        ValueError: The password does not open it, or there is none in it.
    """
    found = _certificates(_open(store, password))
    if not found:
        raise ValueError("the store has no certificates")
    return found


def identity(store: bytes, password: str, key_password: str) -> tuple[str, str]:
    """The certificate chain, the client's own first, and its key.

    Args:
        store: The file's bytes.
        password: Opens it.
        key_password: With which the key is encrypted in what is returned; "": not at all.

    Raises:
        ValueError: The password does not open it, or there is no key in it.
    """
    opened = _open(store, password)
    if opened.key is None or opened.cert is None:
        raise ValueError("the store has no key with a certificate")
    lock = BestAvailableEncryption(key_password.encode()) if key_password else NoEncryption()
    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    return _certificates(opened), key.decode("ascii")


def _open(store: bytes, password: str) -> PKCS12KeyAndCertificates:
    return load_pkcs12(store, password.encode() if password else None)


def _certificates(opened: PKCS12KeyAndCertificates) -> str:
    found = [*([] if opened.cert is None else [opened.cert]), *opened.additional_certs]
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode("ascii") for one in found)
