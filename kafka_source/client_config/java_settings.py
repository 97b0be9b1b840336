"""Every setting of Java's clients (kafka-clients 4.3): type, range, librdkafka's name, handling here.

The names, types and lower bounds are those of Java's `ConsumerConfig`, `ProducerConfig`, `AdminClientConfig`,
`SslConfigs` and `SaslConfigs`; a test compares them with the jar. `check` compares the users' settings with this table,
`librdkafka` translates them by the table, and docs/kafka-settings.md is generated from the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto


class Role(Flag):
    """The clients of Java that have a setting: CONSUMER for a read, PRODUCER for a write."""

    CONSUMER = auto()
    PRODUCER = auto()
    ADMIN = auto()
    ALL = CONSUMER | PRODUCER | ADMIN


class Handling(Enum):
    """The handling of a setting."""

    HONOURED = "honoured"
    MAPPED = "mapped"
    UNUSED = "no meaning"
    REFUSED = "refused"


class Type(Enum):
    """The types of Java (`ConfigDef.Type`), in words that complete the sentence "it takes …"."""

    INT = "a whole number"
    LONG = "a whole number of 64 bits"
    SHORT = "a whole number of 16 bits"
    DOUBLE = "a number"
    BOOLEAN = "true or false"
    STRING = "a text"
    LIST = "texts, separated by commas"
    CLASS = "the name of a Java class"
    PASSWORD = "a secret"  # noqa: S105 - words for people


_NOBODY = Role(0)


@dataclass(frozen=True, slots=True)
class JavaSetting:
    """A setting of the Java clients.

    Attributes:
        name: Its name.
        roles: The Java clients that have the setting.
        type: Its type.
        native: The setting's handling by the native engine and kafkagroup's own connections.
        librdkafka: The setting's handling by the librdkafka engine.
        does: The effect, if Java's documentation differs, the reason for no effect, or an alternative; no full stop.
        minimum: Java's lower bound of a number; None: no bound.
        maximum: Java's upper bound of a number; None: no bound.
        words: The texts that Java accepts, in lower case; empty: any.
        rdkafka: librdkafka's name for the setting; empty: librdkafka does not get the value.
        refused_for: The roles in which the setting is refused; in other roles the setting has no meaning.
        harmless: Values that are not refused, because they change nothing; in lower case, without a Java package.
    """

    name: str
    roles: Role
    type: Type
    native: Handling
    librdkafka: Handling
    does: str = ""
    minimum: int | None = None
    maximum: int | None = None
    words: tuple[str, ...] = ()
    rdkafka: str = ""
    refused_for: Role = _NOBODY
    harmless: tuple[str, ...] = ()

    @property
    def takes(self) -> str:
        """The accepted values, in words."""
        if self.words:
            return "one of " + ", ".join(self.words)
        bounds = (("at least", self.minimum), ("at most", self.maximum))
        return ", ".join([self.type.value, *(f"{which} {bound}" for which, bound in bounds if bound is not None)])

    def is_harmless(self, value: str) -> bool:
        """Return whether a value, such as Java's default of a refused setting, changes nothing."""
        return value.rsplit(".", 1)[-1].lower() in self.harmless


_C, _P, _A = Role.CONSUMER, Role.PRODUCER, Role.ADMIN
_CP, _PA, _CA, _ALL = _C | _P, _P | _A, _C | _A, Role.ALL
_INT, _LONG, _STRING, _LIST, _CLASS, _BOOL = Type.INT, Type.LONG, Type.STRING, Type.LIST, Type.CLASS, Type.BOOLEAN
_SECRET, _DOUBLE, _SHORT = Type.PASSWORD, Type.DOUBLE, Type.SHORT


def _honoured(
    name: str, roles: Role, kind: Type, does: str = "", *, minimum: int | None = None, words: tuple[str, ...] = ()
) -> JavaSetting:
    """A setting that both engines follow. librdkafka does not get it under Java's name, for example security."""
    return JavaSetting(name, roles, kind, Handling.HONOURED, Handling.HONOURED, does, minimum, words=words)


def _passed(
    name: str,
    roles: Role,
    kind: Type,
    does: str = "",
    *,
    native: Handling = Handling.HONOURED,
    minimum: int | None = None,
    maximum: int | None = None,
    words: tuple[str, ...] = (),
    rdkafka: str = "",
) -> JavaSetting:
    """A setting that librdkafka gets, under Java's name or under `rdkafka`."""
    how = Handling.MAPPED if rdkafka else Handling.HONOURED
    return JavaSetting(name, roles, kind, native, how, does, minimum, maximum, words, rdkafka or name)


def _unused(name: str, roles: Role, kind: Type, does: str, *, minimum: int | None = None) -> JavaSetting:
    return JavaSetting(name, roles, kind, Handling.UNUSED, Handling.UNUSED, does, minimum)


def _refused(
    name: str, roles: Role, kind: Type, does: str, *, minimum: int | None = None, harmless: tuple[str, ...] = ()
) -> JavaSetting:
    how = Handling.REFUSED
    return JavaSetting(name, roles, kind, how, how, does, minimum, refused_for=roles, harmless=harmless)


_JVM = "for the Java platform only"
_METRICS = "kafkagroup has no metrics of Java; see the query's progress"
_JAVA_CLASS = "it is a Java class"
_MAPPED, _UNUSED = Handling.MAPPED, Handling.UNUSED

_CONNECTIONS = (
    _passed("bootstrap.servers", _ALL, _LIST),
    _unused("bootstrap.controllers", _A, _LIST, "clients connect to brokers"),
    _passed(
        "client.dns.lookup",
        _ALL,
        _STRING,
        "the native engine tries all addresses of a name together, librdkafka one after another, also with `default`",
        words=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only", "default"),
    ),
    _passed("client.id", _ALL, _STRING, "default `kafkagroup`; control connections append their purpose"),
    _passed("client.rack", _C, _STRING, "`env:NAME`: the environment variable NAME of each process"),
    _passed(
        "connections.max.idle.ms",
        _ALL,
        _LONG,
        "kafkagroup's own connections stay open until the broker closes them",
        native=_UNUSED,
    ),
    _honoured("default.api.timeout.ms", _CA, _INT, "how long the driver retries a request", minimum=0),
    _passed(
        "metadata.max.age.ms",
        _ALL,
        _LONG,
        "in a read an [option](options.md); after this time (10 s) metadata are requested from another broker",
        minimum=0,
    ),
    _unused("metadata.max.idle.ms", _P, _LONG, "metadata are kept as long as a task's producer", minimum=5000),
    _passed("metadata.recovery.strategy", _ALL, _STRING, "an [option](options.md)"),
    _passed("metadata.recovery.rebootstrap.trigger.ms", _ALL, _LONG, "an [option](options.md)", minimum=0),
    _passed(
        "receive.buffer.bytes",
        _ALL,
        _INT,
        "-1 (default): the operating system's size",
        minimum=-1,
        rdkafka="socket.receive.buffer.bytes",
    ),
    _passed(
        "send.buffer.bytes",
        _ALL,
        _INT,
        "-1 (default): the operating system's size",
        minimum=-1,
        rdkafka="socket.send.buffer.bytes",
    ),
    _passed("reconnect.backoff.ms", _ALL, _LONG, "also the default of `reconnect.backoff.max.ms`", minimum=0),
    _passed("reconnect.backoff.max.ms", _ALL, _LONG, minimum=0),
    _passed("request.timeout.ms", _ALL, _INT, minimum=0, rdkafka="socket.timeout.ms"),
    _passed("retry.backoff.ms", _ALL, _LONG, minimum=0),
    _passed("retry.backoff.max.ms", _ALL, _LONG, minimum=0),
    _passed(
        "socket.connection.setup.timeout.ms",
        _ALL,
        _LONG,
        "10 s by default, as in Java. The native engine limits the time for all addresses of a name, TLS and login; "
        "librdkafka limits the time for each address. If an address of a name may not answer, use the native engine",
    ),
    _unused("socket.connection.setup.timeout.max.ms", _ALL, _LONG, "the timeout of a connection does not grow"),
    _passed("enable.metrics.push", _ALL, _BOOL, "the native engine pushes no metrics", native=_UNUSED),
    _unused("metric.reporters", _ALL, _LIST, _METRICS),
    _unused("metrics.num.samples", _ALL, _INT, _METRICS, minimum=1),
    _unused("metrics.recording.level", _ALL, _STRING, _METRICS),
    _unused("metrics.sample.window.ms", _ALL, _LONG, _METRICS, minimum=0),
    _honoured(
        "config.providers",
        _ALL,
        _LIST,
        "Java's three providers, with their parameters: "
        "[values from files and the environment](#values-from-files-and-the-environment)",
    ),
    _unused("security.providers", _ALL, _STRING, _JVM),
)

_GROUP = (
    _honoured("group.id", _C, _STRING, "the group that a read [joins](group.md)"),
    _honoured("group.instance.id", _C, _STRING, "an [option](options.md): the prefix of instance ids"),
    _honoured("heartbeat.interval.ms", _C, _INT, "an [option](options.md)"),
    _honoured("max.poll.interval.ms", _C, _INT, "an [option](options.md)", minimum=1),
    _honoured("partition.assignment.strategy", _C, _LIST, "names of [assignors](assignors.md), or Java's classes"),
    _honoured("session.timeout.ms", _C, _INT, "an [option](options.md)"),
    _honoured("group.protocol", _C, _STRING, "an [option](options.md)", words=("classic", "consumer")),
    _honoured("group.remote.assignor", _C, _STRING, "an [option](options.md)"),
    _unused("auto.commit.interval.ms", _C, _INT, "see the option `commit`", minimum=0),
    _unused("internal.throw.on.fetch.stable.offset.unsupported", _C, _BOOL, "internal to Kafka"),
    _unused("max.poll.records", _C, _INT, "the option `batch.rows` bounds the rows of a batch", minimum=1),
    _unused("share.acknowledgement.mode", _C, _STRING, "share groups are not supported"),
    _unused("share.acquire.mode", _C, _STRING, "share groups are not supported"),
    _refused("auto.offset.reset", _C, _STRING, "use `startingOffsets`"),
    _refused("enable.auto.commit", _C, _BOOL, "use `commit=batch` or `task`"),
)

_FETCH = (
    _unused("allow.auto.create.topics", _C, _BOOL, "a read creates no topics"),
    _passed("check.crcs", _C, _BOOL, "the native engine always checks", native=_UNUSED),
    _unused("exclude.internal.topics", _C, _BOOL, "`subscribePattern` never matches internal topics"),
    _passed(
        "fetch.max.bytes",
        _C,
        _INT,
        "the native engine requests at most 32 MiB in a fetch, librdkafka at least 1,000 bytes",
        minimum=0,
    ),
    _passed("fetch.max.wait.ms", _C, _INT, minimum=0, rdkafka="fetch.wait.max.ms"),
    _passed("fetch.min.bytes", _C, _INT, minimum=0),
    _honoured("isolation.level", _C, _STRING, "an [option](options.md)"),
    _passed("max.partition.fetch.bytes", _C, _INT, "the native engine requests at most 32 MiB in a fetch", minimum=0),
    _refused("key.deserializer", _C, _CLASS, "keys are binary; cast the column"),
    _refused("value.deserializer", _C, _CLASS, "values are binary; cast the column"),
    _refused("interceptor.classes", _CP, _LIST, "interceptors are Java classes"),
)

_PRODUCE = (
    _passed("acks", _P, _STRING, "with 0 the sink uses librdkafka", words=("all", "-1", "0", "1")),
    _passed("batch.size", _P, _INT, "default 1 MB", minimum=0),
    JavaSetting(
        "buffer.memory",
        _P,
        _LONG,
        _UNUSED,
        _MAPPED,
        "the native engine sends a batch as soon as it is full",
        0,
        rdkafka="queue.buffering.max.kbytes",
    ),
    _passed("compression.gzip.level", _P, _INT, words=("-1", *"123456789"), rdkafka="compression.level"),
    _passed("compression.lz4.level", _P, _INT, minimum=1, maximum=17, rdkafka="compression.level"),
    _passed("compression.zstd.level", _P, _INT, minimum=-131_072, maximum=22, rdkafka="compression.level"),
    _passed("compression.type", _P, _STRING, words=("none", "gzip", "snappy", "lz4", "zstd")),
    _passed("delivery.timeout.ms", _P, _INT, minimum=0),
    _passed("enable.idempotence", _P, _BOOL),
    _passed("linger.ms", _P, _LONG, "default 50", minimum=0),
    _passed(
        "max.block.ms",
        _P,
        _LONG,
        "how long a topic may be unknown; default 5000",
        minimum=0,
        rdkafka="topic.metadata.propagation.max.ms",
    ),
    _passed(
        "max.in.flight.requests.per.connection",
        _P,
        _INT,
        "the native engine sends one request at a time to each broker",
        minimum=1,
        native=_UNUSED,
    ),
    _passed("max.request.size", _P, _INT, minimum=0, rdkafka="message.max.bytes"),
    _unused("partitioner.adaptive.partitioning.enable", _P, _BOOL, "records without a key are spread evenly"),
    _unused("partitioner.availability.timeout.ms", _P, _LONG, "records without a key are spread evenly", minimum=0),
    _passed(
        "retries",
        _PA,
        _INT,
        "with 0 the sink uses librdkafka; other values mean retries until `delivery.timeout.ms`",
        minimum=0,
    ),
    _passed("transaction.timeout.ms", _P, _INT, "default 10 minutes"),
    _refused("transactional.id", _P, _STRING, "use `transactional=true` and `transactional.id.prefix`"),
    _refused(
        "transaction.two.phase.commit.enable",
        _P,
        _BOOL,
        "the sink's two-phase commit does not need this setting",
        harmless=("false",),
    ),
    _refused("key.serializer", _P, _CLASS, "keys are binary or string; cast the column"),
    _refused("value.serializer", _P, _CLASS, "values are binary or string; cast the column, or set value.format"),
    _refused(
        "partitioner.class",
        _P,
        _CLASS,
        "it is a Java class; records with a key use Java's default partitioner, and a column `partition` takes "
        "precedence",
    ),
    _refused(
        "partitioner.ignore.keys", _P, _BOOL, "write without a key, or with a column `partition`", harmless=("false",)
    ),
)

_SSL = (
    _honoured("security.protocol", _ALL, _STRING),
    _honoured("ssl.cipher.suites", _ALL, _LIST, "OpenSSL's names"),
    _honoured("ssl.enabled.protocols", _ALL, _LIST, "TLSv1.2 and TLSv1.3; a single version needs the native engine"),
    _honoured("ssl.endpoint.identification.algorithm", _ALL, _STRING),
    _honoured("ssl.key.password", _ALL, _SECRET),
    _honoured("ssl.keystore.certificate.chain", _ALL, _SECRET),
    _honoured("ssl.keystore.key", _ALL, _SECRET),
    _honoured("ssl.keystore.location", _ALL, _STRING, "PEM, JKS, or with the extra `pkcs12` PKCS12"),
    _honoured("ssl.keystore.password", _ALL, _SECRET),
    _honoured("ssl.keystore.type", _ALL, _STRING, "PEM, PKCS12 or JKS; the file's content determines the type"),
    _honoured("ssl.protocol", _ALL, _STRING, "TLS, TLSv1.2 (native engine) or TLSv1.3; see `ssl.enabled.protocols`"),
    _honoured("ssl.truststore.certificates", _ALL, _SECRET),
    _honoured("ssl.truststore.location", _ALL, _STRING, "PEM, JKS, or with the extra `pkcs12` PKCS12"),
    _honoured("ssl.truststore.password", _ALL, _SECRET),
    _honoured("ssl.truststore.type", _ALL, _STRING, "PEM, PKCS12 or JKS; the file's content determines the type"),
    _refused(
        "ssl.engine.factory.class",
        _ALL,
        _CLASS,
        f"{_JAVA_CLASS}; use `kafka.ssl.keystore.*` and `kafka.ssl.truststore.*`",
    ),
    _unused("ssl.keymanager.algorithm", _ALL, _STRING, _JVM),
    _unused("ssl.provider", _ALL, _STRING, _JVM),
    _unused("ssl.secure.random.implementation", _ALL, _STRING, _JVM),
    _unused("ssl.trustmanager.algorithm", _ALL, _STRING, _JVM),
)

_KERBEROS = "the Kerberos library renews tickets of a keytab; the process's user renews other tickets"
_REFRESH = "a new token is fetched after 80 % of a token's lifetime"
_BROKERS = "only brokers use it"
_ASSERTION = (
    "tokens are fetched by client credentials; for another grant name a function in `sasl.oauthbearer.token.provider`"
)

_SASL = (
    _honoured("sasl.mechanism", _ALL, _STRING, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM"),
    _honoured(
        "sasl.jaas.config", _ALL, _SECRET, "a JAAS file of the JVM (`java.security.auth.login.config`) is not read"
    ),
    _honoured(
        "sasl.client.callback.handler.class",
        _ALL,
        _CLASS,
        "`IAMClientCallbackHandler` with AWS_MSK_IAM, or `OAuthBearerSaslClientCallbackHandler`; others are refused",
    ),
    _honoured(
        "sasl.login.callback.handler.class",
        _ALL,
        _CLASS,
        "the handlers of Kafka, AWS and Google; others are refused: name a function in "
        "`sasl.oauthbearer.token.provider`",
    ),
    _refused("sasl.login.class", _ALL, _CLASS, f"{_JAVA_CLASS}; name a function in `sasl.oauthbearer.token.provider`"),
    _honoured("sasl.kerberos.service.name", _ALL, _STRING),
    _unused("sasl.kerberos.kinit.cmd", _ALL, _STRING, _KERBEROS),
    _unused("sasl.kerberos.min.time.before.relogin", _ALL, _LONG, _KERBEROS),
    _unused("sasl.kerberos.ticket.renew.jitter", _ALL, _DOUBLE, _KERBEROS),
    _unused("sasl.kerberos.ticket.renew.window.factor", _ALL, _DOUBLE, _KERBEROS),
    _unused("sasl.login.connect.timeout.ms", _ALL, _INT, "a token must arrive within 10 seconds"),
    _unused("sasl.login.read.timeout.ms", _ALL, _INT, "a token must arrive within 10 seconds"),
    _unused("sasl.login.refresh.buffer.seconds", _ALL, _SHORT, _REFRESH, minimum=0),
    _unused("sasl.login.refresh.min.period.seconds", _ALL, _SHORT, _REFRESH, minimum=0),
    _unused("sasl.login.refresh.window.factor", _ALL, _DOUBLE, _REFRESH),
    _unused("sasl.login.refresh.window.jitter", _ALL, _DOUBLE, _REFRESH),
    _unused("sasl.login.retry.backoff.max.ms", _ALL, _LONG, "a login is retried after `retry.backoff.ms`"),
    _unused("sasl.login.retry.backoff.ms", _ALL, _LONG, "a login is retried after `retry.backoff.ms`"),
    _honoured("sasl.oauthbearer.token.endpoint.url", _ALL, _STRING),
    _honoured("sasl.oauthbearer.scope", _ALL, _STRING),
    _honoured("sasl.oauthbearer.client.credentials.client.id", _ALL, _STRING),
    _honoured("sasl.oauthbearer.client.credentials.client.secret", _ALL, _SECRET),
    _unused("sasl.oauthbearer.header.urlencode", _ALL, _BOOL, "credentials are always encoded (RFC 6749)"),
    _unused("sasl.oauthbearer.jwt.validator.class", _ALL, _CLASS, "brokers validate tokens"),
    _refused(
        "sasl.oauthbearer.jwt.retriever.class",
        _ALL,
        _CLASS,
        _ASSERTION,
        harmless=("defaultjwtretriever", "clientcredentialsjwtretriever"),
    ),
    *(
        _unused(f"sasl.oauthbearer.{name}", _ALL, kind, _BROKERS)
        for name, kind in (
            ("clock.skew.seconds", _INT),
            ("expected.audience", _LIST),
            ("expected.issuer", _STRING),
            ("jwks.endpoint.refresh.ms", _LONG),
            ("jwks.endpoint.retry.backoff.max.ms", _LONG),
            ("jwks.endpoint.retry.backoff.ms", _LONG),
            ("jwks.endpoint.url", _STRING),
            ("scope.claim.name", _STRING),
            ("sub.claim.name", _STRING),
        )
    ),
    *(
        _refused(f"sasl.oauthbearer.assertion.{name}", _ALL, kind, _ASSERTION, minimum=0 if kind is _INT else None)
        for name, kind in (
            ("algorithm", _STRING),
            ("claim.aud", _STRING),
            ("claim.exp.seconds", _INT),
            ("claim.iss", _STRING),
            ("claim.jti.include", _BOOL),
            ("claim.nbf.seconds", _INT),
            ("claim.sub", _STRING),
            ("file", _STRING),
            ("private.key.file", _STRING),
            ("private.key.passphrase", _SECRET),
            ("template.file", _STRING),
        )
    ),
)

SECTIONS: Mapping[str, tuple[JavaSetting, ...]] = {
    "Connections and requests": _CONNECTIONS,
    "Consumer groups": _GROUP,
    "Reading": _FETCH,
    "Writing": _PRODUCE,
    "TLS": _SSL,
    "Login": _SASL,
}
"""All settings of Java, by subject."""

JAVA: Mapping[str, JavaSetting] = {one.name: one for section in SECTIONS.values() for one in section}
"""All settings of Java by name."""

TOKEN_PROVIDER = "sasl.oauthbearer.token.provider"  # noqa: S105 - a name
"""kafkagroup's own setting: the provider of OAUTHBEARER tokens."""

OWN = frozenset(
    {
        "cluster.moved.from",
        "enable.ssl.certificate.verification",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        TOKEN_PROVIDER,
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.crl.location",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
"""Settings that both engines follow and Java lacks: librdkafka's names for security, and kafkagroup's own."""

FOLLOWED_BY_NATIVE = frozenset({"topic.metadata.propagation.max.ms"})
"""Settings of librdkafka's own that the native engine follows too."""

KNOWN = frozenset(JAVA) | OWN
"""All names that both engines know."""

CONFIG_PROVIDERS = "config.providers"
"""The setting that names the providers of values, and the prefix of their own settings."""


def is_known(name: str) -> bool:
    """Return whether a setting is in `KNOWN`, or belongs to a provider of values (`config.providers.{name}.class`)."""
    return name in KNOWN or name.startswith(f"{CONFIG_PROVIDERS}.")


def as_markdown() -> str:
    """Return the tables of docs/kafka-settings.md: a row for all settings with the same remark."""
    lines: list[str] = []
    for heading, settings in SECTIONS.items():
        lines += [f"## {heading}", "", "| setting | here |", "| --- | --- |"]
        rows: dict[str, list[str]] = {}
        for one in sorted(settings, key=lambda one: one.name):
            rows.setdefault(_remark(one), []).append(f"`{one.name}`")
        lines += [f"| {', '.join(names)} | {remark} |" for remark, names in rows.items()]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _remark(java: JavaSetting) -> str:
    """Return the page's remark about a setting."""
    if java.native is java.librdkafka and java.native is not Handling.HONOURED:
        return f"{java.native.value}: {java.does}"
    only = "librdkafka only" if java.native is _UNUSED else ""
    name = f"in librdkafka `{java.rdkafka}`" if java.librdkafka is _MAPPED else ""
    return "; ".join(filter(None, (only, name, java.does))) or "as in Java"
