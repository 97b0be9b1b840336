"""Converts PKCS12 stores, Java's default type since version 9, to the PEM text that OpenSSL and librdkafka accept.

Only this module needs the extra `pkcs12` (the library cryptography).
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
    """Return the certificates of a trust store as PEM.

    Args:
        store: The file's bytes.
        password: The store's password.

    Raises:
        ValueError: The password does not open the store, or the store has no certificates.
    """
    found = _certificates(_open(store, password))
    if not found:
        raise ValueError("the store has no certificates")
    return found


def identity(store: bytes, password: str, key_password: str) -> tuple[str, str]:
    """Return the certificate chain, with the client's own certificate first, and the private key as PEM.

    Args:
        store: The file's bytes.
        password: The store's password.
        key_password: The password that encrypts the returned key; empty: the key is not encrypted.

    Raises:
        ValueError: The password does not open the store, or the store has no key with a certificate.
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
