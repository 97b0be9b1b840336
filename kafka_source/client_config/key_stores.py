"""The bytes of Java's key and trust stores (JKS, PKCS12) as the PEM text that OpenSSL and librdkafka accept.

JKS is the type of stores before Java 9, in the format of `sun.security.provider.JavaKeyStore`. JKS is read here, with
hashlib alone, because libraries for JKS are no longer maintained and bring compiled dependencies. PKCS12, the type from
Java 9 on, needs the extra `pkcs12` (the library cryptography), which is imported when such a store is read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


MAGIC = b"\xfe\xed\xfe\xed"
"""The first bytes of a JKS store."""

_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_PHRASE = b"Mighty Aphrodite"
# The identifier of Java's own encryption of keys: 1.3.6.1.4.1.42.2.17.1.1, as DER.
_PROTECTION = bytes.fromhex("060a2b060104012a02110101")


@dataclass(frozen=True, slots=True)
class _Store:
    """The entries of a store, in DER: trusted certificates, and private keys (encrypted) with their chains."""

    trusted: tuple[bytes, ...]
    keys: tuple[tuple[bytes, tuple[bytes, ...]], ...] = field(repr=False)


def jks_certificates(store: bytes, password: str) -> str:
    """Return the certificates of a trust store as PEM.

    Args:
        store: The file's bytes.
        password: The store's password; empty: the store's digest is not checked, as in Java.

    Raises:
        ValueError: The store is damaged or has no certificates, or the password is wrong.
    """
    opened = _open_jks(store, password)
    found = [*opened.trusted, *(certificate for _, chain in opened.keys for certificate in chain)]
    if not found:
        raise ValueError("the store has no certificates")
    return "".join(_pem("CERTIFICATE", one) for one in found)


def jks_identity(store: bytes, password: str, key_password: str) -> tuple[str, str]:
    """Return the certificate chain, with the client's own certificate first, and the private key as PEM.

    Raises:
        ValueError: The store is damaged, a password is wrong, or the store has no key.
    """
    keys = _open_jks(store, password).keys
    if not keys:
        raise ValueError("the store has no key with a certificate")
    protected, chain = keys[0]
    return "".join(_pem("CERTIFICATE", one) for one in chain), _pem("PRIVATE KEY", _decrypted(protected, key_password))


def _open_jks(store: bytes, password: str) -> _Store:
    if password:
        digest = hashlib.sha1(_utf16(password) + _PHRASE + store[:-_DIGEST_BYTES]).digest()
        if not hmac.compare_digest(digest, store[-_DIGEST_BYTES:]):
            raise ValueError("the password is wrong, or the file is damaged")
    try:
        return _Reader(store[:-_DIGEST_BYTES]).store()
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ValueError("the file is damaged") from None


class _Reader:
    """Reads big-endian numbers and counted bytes, one after another; each read consumes bytes or fails."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(MAGIC)

    def store(self) -> _Store:
        version, count = self._number(">I"), self._number(">I")
        if version not in (1, 2):
            raise ValueError(f"the version {version} of the store is not known")
        trusted: list[bytes] = []
        keys: list[tuple[bytes, tuple[bytes, ...]]] = []
        for _ in range(count):
            kind = self._number(">I")
            self._bytes(self._number(">H"))  # the alias
            self._number(">q")  # the time of its creation
            if kind == _KEY:
                protected = self._bytes(self._number(">I"))
                keys.append((protected, tuple([self._certificate(version) for _ in range(self._number(">I"))])))
            elif kind == _CERTIFICATE:
                trusted.append(self._certificate(version))
            else:
                raise ValueError(f"the store has an entry of the unknown kind {kind}")
        return _Store(tuple(trusted), tuple(keys))

    def _certificate(self, version: int) -> bytes:
        if version == 2:
            self._bytes(self._number(">H"))  # the type: X.509
        return self._bytes(self._number(">I"))

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise IndexError
        found, self._at = self._data[self._at : end], end
        return found


def _decrypted(protected: bytes, password: str) -> bytes:
    """Decrypt a private key (PKCS8, DER): XOR with a chain of SHA-1 digests of the password and the previous digest."""
    secret = _utf16(password)
    sealed = _octets(protected)
    salt, hidden, check = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    digest, stream = salt, bytearray()
    while len(stream) < len(hidden):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise ValueError("the password of the key is wrong")
    return key


def _octets(protected: bytes) -> bytes:
    """Return the encrypted key in an EncryptedPrivateKeyInfo (RFC 5208)."""
    info = _content(protected, 0x30)[0]
    algorithm, rest = _content(info, 0x30)
    if not algorithm.startswith(_PROTECTION):
        raise ValueError("the store's key is encrypted in a way that is not Java's own")
    return _content(rest, 0x04)[0]


def _content(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first DER value, which must have this tag, and the bytes after it."""
    if len(der) < 2 or der[0] != tag:
        raise ValueError("the key's entry is damaged")
    begin, length = 2, der[1]
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError("the key's entry is damaged")
    return der[begin : begin + length], der[begin + length :]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode("ascii")
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def pkcs12_certificates(store: bytes, password: str) -> str:
    """Return the certificates of a trust store as PEM.

    Raises:
        ValueError: The password does not open the store, or the store has no certificates.
    """
    found = _certificates(_open_pkcs12(store, password))
    if not found:
        raise ValueError("the store has no certificates")
    return found


def pkcs12_identity(store: bytes, password: str, key_password: str) -> tuple[str, str]:
    """Return the certificate chain, with the client's own certificate first, and the private key as PEM.

    Args:
        store: The file's bytes.
        password: The store's password.
        key_password: The password that encrypts the returned key; empty: the key is not encrypted.

    Raises:
        ValueError: The password does not open the store, or the store has no key with a certificate.
    """
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    opened = _open_pkcs12(store, password)
    if opened.key is None or opened.cert is None:
        raise ValueError("the store has no key with a certificate")
    lock = BestAvailableEncryption(key_password.encode()) if key_password else NoEncryption()
    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    return _certificates(opened), key.decode("ascii")


def _open_pkcs12(store: bytes, password: str) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    return load_pkcs12(store, password.encode() if password else None)


def _certificates(opened: PKCS12KeyAndCertificates) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [*([] if opened.cert is None else [opened.cert]), *opened.additional_certs]
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode("ascii") for one in found)
