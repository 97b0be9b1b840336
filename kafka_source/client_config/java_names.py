"""Settings of the Java clients, by how this package handles them."""

from __future__ import annotations

GROUP = frozenset(
    {
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    }
)
"""Used by the package's own group membership; not passed to librdkafka, whose consumers join no group here."""

SECURITY = frozenset(
    {
        "enable.ssl.certificate.verification",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Read by `sasl` and `tls`, which know the names of Java's client and of librdkafka."""

REFUSED = {
    "interceptor.classes": "nothing: interceptors are Java code",
    "key.deserializer": "nothing: keys are binary, cast the column",
    "key.serializer": "nothing: keys are binary or string, cast the column",
    "partitioner.class": "nothing: it is a Java class; records with a key use Java's default partitioner, and a "
    "`partition` column takes precedence over it",
    "partitioner.ignore.keys": "nothing: write without a key, or with a `partition` column",
    "sasl.client.callback.handler.class": "nothing: it is a Java class",
    "ssl.engine.factory.class": "nothing: it is a Java class; use kafka.ssl.keystore.* and kafka.ssl.truststore.*",
    "transaction.two.phase.commit.enable": "nothing: the sink's two-phase commit does not use it",
    "value.deserializer": "nothing: values are binary, cast the column",
    "value.serializer": "nothing: values are binary or string, cast the column",
}
"""Settings that would change what is read or written, and what to do instead: the end of the error's text."""

IGNORED = frozenset(
    {
        "bootstrap.controllers",
        "cluster.moved.from",
        "config.providers",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "max.block.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Ignored, because they tune parts of the Java clients that the clients of this package do not have."""

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""librdkafka's name by Java's name, if the value has the same meaning and librdkafka has no alias for it."""

KNOWN = frozenset(
    {
        "acks",
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "isolation.level",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.ms",
        "transaction.timeout.ms",
        *GROUP,
        *SECURITY,
        *RENAMED,
    }
)
"""Names to suggest in the error for an unknown name."""
