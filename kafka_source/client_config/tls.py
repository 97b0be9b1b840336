"""A client's TLS: key and trust stores, PEM, protocol versions, the check of the host's name.

Of Java's store types, PEM is used as it is, from files or inline (KIP-651), and PKCS12 and JKS are converted to PEM.
A JCEKS store is refused; the error has the command that converts the store.
"""

import re
import ssl
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka_source.client_config import key_stores
from kafka_source.client_config.settings import Settings
from kafka_source.errors import OptionError

_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_BOTH = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

# The first bytes of a PKCS12 file (the DER tag of a sequence), and of a JCEKS file.
_SEQUENCE = b"\x30"
_JCEKS = b"\xce\xce\xce\xce"


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text, in a file or inline; never shown.

    Attributes:
        option: The option that names the file or has the text.
        location: The path of the file; empty if the text is inline.
        text: The text; empty if it is in a file.
    """

    option: str
    location: str = ""
    text: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Settings, name: str) -> "Pem":
        """Return the PEM of a setting, which is the text itself or, with the suffix `.location`, the path of a file."""
        value = settings[name]
        return cls(f"kafka.{name}", value) if name.endswith(".location") else cls(f"kafka.{name}", text=value)

    @property
    def shown(self) -> str:
        """The file's path or "inline PEM", for errors."""
        return self.location or "inline PEM"

    def read(self) -> str:
        """Return the blocks of the text, without its comments, which may be in any encoding.

        Properties files and environment variables have the text in one line, with spaces or `\\n` as line ends.

        Raises:
            OptionError: The file cannot be read on this machine, or there are no blocks.
        """
        text = _read(self.location, self.option).decode("latin-1") if self.location else self.text
        blocks = "".join(map(_lines_of_block, _BLOCK.finditer(text.replace("\\n", "\n"))))
        if not blocks:
            raise OptionError(self.option, self.shown, "PEM, which begins with -----BEGIN")
        return blocks


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([!-~\s]*?)-----END \1-----", re.ASCII)


def _lines_of_block(block: re.Match[str]) -> str:
    words, headers = block[2].split(), ""
    # A header of an encrypted key in the old form: `DEK-Info: AES-128-CBC,…`.
    while len(words) > 1 and words[0].endswith(":"):
        headers += f"{words.pop(0)} {words.pop(0)}\n"
    body = textwrap.fill("".join(words), 64)
    return f"-----BEGIN {block[1]}-----\n{headers}{headers and chr(10)}{body}\n-----END {block[1]}-----\n"


@dataclass(frozen=True, slots=True)
class Tls:
    """The parameters of a TLS connection.

    Attributes:
        authorities: The trusted CA certificates; None: those of the operating system.
        certificate: The client's certificate with its chain; None: no client authentication.
        key: The client's private key.
        key_password: The password of the private key; empty if it is not encrypted.
        revoked: The path of a file with revoked certificates; empty: no file.
        check_hostname: Whether the broker's certificate must be valid for its host name.
        verify: Whether the broker's certificate is verified at all.
        ciphers: Cipher suites as an OpenSSL list; empty: OpenSSL's default.
        versions: The lowest and the highest version of the TLS protocol.
    """

    authorities: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str = field(default="", repr=False)
    revoked: str = ""
    check_hostname: bool = True
    verify: bool = True
    ciphers: str = ""
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion] = _BOTH


def tls_of(settings: Settings) -> Tls:
    """Return the TLS parameters in the settings.

    Raises:
        OptionError: A store has a type that OpenSSL cannot read, or a file is missing.
    """
    key_password = settings.get("ssl.key.password") or settings.get("ssl.keystore.password", "")
    certificate, key = _identity(settings, key_password)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise OptionError("kafka.ssl.endpoint.identification.algorithm", algorithm, "https, or none for no check")
    return Tls(
        authorities=_authorities(settings),
        certificate=certificate,
        key=key,
        key_password=key_password,
        revoked=settings.get("ssl.crl.location", ""),
        check_hostname=algorithm == "https",
        verify=settings.get("enable.ssl.certificate.verification", "true").lower() != "false",
        ciphers=settings.get("ssl.cipher.suites", ""),
        versions=_versions(settings),
    )


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Create Python's `SSLContext` with these parameters.

    Raises:
        OptionError: A certificate or key cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = tls.versions
    context.check_hostname = tls.check_hostname and tls.verify
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    _trust(context, tls)
    if tls.certificate is not None and tls.key is not None:
        _identify(context, tls.certificate, tls.key, tls.key_password)
    if tls.ciphers:
        try:
            context.set_ciphers(tls.ciphers)
        except ssl.SSLError:
            raise OptionError("kafka.ssl.cipher.suites", tls.ciphers, "names that OpenSSL knows") from None
    return context


def check_versions(settings: Settings) -> None:
    """Refuse settings that allow only one version of TLS, because librdkafka has no setting for versions.

    librdkafka offers TLS 1.2 and 1.3, which are Java's defaults too.

    Raises:
        OptionError: The settings allow only one version.
    """
    if settings.get("security.protocol", "").upper().endswith("SSL") and _versions(settings) != _BOTH:
        name = "ssl.enabled.protocols" if "ssl.enabled.protocols" in settings else "ssl.protocol"
        raise OptionError(
            f"kafka.{name}",
            settings[name],
            "TLSv1.2 and TLSv1.3 together, because librdkafka cannot be limited to one version: use engine=native, "
            "or limit the version on the brokers",
        )


def _versions(settings: Settings) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the oldest and the newest version that `ssl.enabled.protocols` and `ssl.protocol` allow, as Java does.

    Raises:
        OptionError: A version is older than TLS 1.2 or unknown, or no version is left.
    """
    takes = "TLSv1.2, TLSv1.3 or both; older versions are not secure"
    enabled = settings.get("ssl.enabled.protocols", "")
    names = [name.strip().upper() for name in enabled.split(",") if name.strip()] or list(_VERSIONS)
    if not set(names) <= _VERSIONS.keys():
        raise OptionError("kafka.ssl.enabled.protocols", enabled, takes)
    newest = settings.get("ssl.protocol", "TLS").upper()
    if newest not in ("TLS", *_VERSIONS):
        raise OptionError("kafka.ssl.protocol", settings["ssl.protocol"], "TLS, TLSv1.2 or TLSv1.3")
    versions = sorted(_VERSIONS[name] for name in names)
    if newest == "TLSV1.2":
        versions = [version for version in versions if version == ssl.TLSVersion.TLSv1_2]
    if not versions:
        raise OptionError("kafka.ssl.protocol", settings["ssl.protocol"], "a version of kafka.ssl.enabled.protocols")
    return versions[0], versions[-1]


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.authorities is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=tls.authorities.read())
        except ssl.SSLError:
            raise OptionError(tls.authorities.option, tls.authorities.shown, "PEM certificates") from None
    if tls.revoked:
        try:
            context.load_verify_locations(cafile=tls.revoked)
        except OSError as problem:
            takes = f"a PEM file with revoked certificates on this machine ({problem.strerror})"
            raise OptionError("kafka.ssl.crl.location", tls.revoked, takes) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, certificate: Pem, key: Pem, password: str) -> None:
    # Python's ssl module reads client certificates only from files. Only the owner can read this folder, which is
    # removed right after the files are loaded.
    with tempfile.TemporaryDirectory(prefix="kafkagroup-") as folder:
        chain, private = Path(folder, "chain.pem"), Path(folder, "key.pem")
        for path, pem in ((chain, certificate), (private, key)):
            path.touch(mode=0o600)
            path.write_text(pem.read(), encoding="ascii")
        try:
            # Without any password OpenSSL would prompt for one at the terminal.
            context.load_cert_chain(chain, private, password=password or (lambda: b""))
        except (ssl.SSLError, OSError) as problem:
            if isinstance(problem, ssl.SSLError) and problem.reason == "KEY_VALUES_MISMATCH":
                takes = f"a chain that begins with the certificate of the key in {key.option}, not of another key"
            else:
                takes = (
                    f"a certificate chain with its key ({key.option}), and kafka.ssl.key.password if it is encrypted"
                )
            raise OptionError(certificate.option, certificate.shown, takes) from None


def _authorities(settings: Settings) -> Pem | None:
    pem = _first(settings, "ssl.truststore.certificates", "ssl.ca.pem", "ssl.ca.location")
    location = "ssl.truststore.location"
    if pem is not None or not settings.get(location):
        return pem
    kind = _kind(settings, "ssl.truststore")
    if kind == "PEM":
        return Pem.of(settings, location)
    with _opening(settings, "ssl.truststore") as (store, password):
        read = key_stores.jks_certificates if kind == "JKS" else key_stores.pkcs12_certificates
        return Pem(f"kafka.{location}", text=read(store, password))


def _identity(settings: Settings, key_password: str) -> tuple[Pem | None, Pem | None]:
    """Return the client's certificate and private key; None for both if the client has no certificate."""
    certificate = _first(settings, "ssl.keystore.certificate.chain", "ssl.certificate.pem", "ssl.certificate.location")
    key = _first(settings, "ssl.keystore.key", "ssl.key.pem", "ssl.key.location")
    if certificate is not None or key is not None:
        if certificate is None or key is None:
            missing = "ssl.keystore.certificate.chain" if certificate is None else "ssl.keystore.key"
            raise OptionError(f"kafka.{missing}", None, "PEM; certificate and key go together")
        return certificate, key
    location = "ssl.keystore.location"
    if not settings.get(location):
        return None, None
    kind = _kind(settings, "ssl.keystore")
    if kind == "PEM":
        return Pem.of(settings, location), Pem.of(settings, location)
    with _opening(settings, "ssl.keystore") as (store, password):
        read = key_stores.jks_identity if kind == "JKS" else key_stores.pkcs12_identity
        chain, private = read(store, password, key_password)
        return Pem(f"kafka.{location}", text=chain), Pem(f"kafka.{location}", text=private)


@contextmanager
def _opening(settings: Settings, store: str) -> Iterator[tuple[bytes, str]]:
    """Yield a store's bytes and password, and turn the block's ValueError into an error about the option."""
    option = f"kafka.{store}.location"
    content = _read(settings[f"{store}.location"], option)
    try:
        yield content, settings.get(f"{store}.password", "")
    except ValueError as problem:
        takes = f"a store that kafka.{store}.password opens ({problem})"
        raise OptionError(option, settings[f"{store}.location"], takes) from None
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "cryptography":
            raise
        takes = "PEM; a PKCS12 store needs the library cryptography: pip install 'kafkagroup[pkcs12]'"
        raise OptionError(option, settings[f"{store}.location"], takes) from None


def _first(settings: Settings, *names: str) -> Pem | None:
    return next((Pem.of(settings, name) for name in names if settings.get(name)), None)


def _kind(settings: Settings, store: str) -> str:
    """Return the type of a store by its content: JKS, PKCS12 or PEM.

    The setting does not determine the type, because Java's default type JKS reads PKCS12 stores too.

    Raises:
        OptionError: The store is a JCEKS file, or the setting for its type is unknown.
    """
    start = _read(settings[f"{store}.location"], f"kafka.{store}.location")[:64].lstrip()
    if start[:4] == _JCEKS:
        raise OptionError(f"kafka.{store}.location", "a JCEKS store", _convert(store))
    kind = settings.get(f"{store}.type", "PEM").upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise OptionError(f"kafka.{store}.type", kind, "PEM (recommended), PKCS12 or JKS")
    if start[:4] == key_stores.MAGIC:
        return "JKS"
    return "PKCS12" if start[:1] == _SEQUENCE else "PEM"


def _read(location: str, option: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise OptionError(option, location, f"a file on this machine ({problem})") from None


def _convert(store: str) -> str:
    name = store.removeprefix("ssl.")
    return (
        f"PKCS12 or PEM; convert it with: keytool -importkeystore -srckeystore {name}.jceks -srcstoretype JCEKS "
        f"-destkeystore {name}.p12 -deststoretype PKCS12, then set kafka.{store}.location={name}.p12"
    )
