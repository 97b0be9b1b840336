"""Settings as a configuration of kafka-python's connections."""

from __future__ import annotations

from typing import Any

from kafka_source.client_config.sasl import sasl_of, security_protocol
from kafka_source.client_config.settings import Settings
from kafka_source.client_config.tls import ssl_context, tls_of

_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "receive.buffer.bytes": "receive_buffer_bytes",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "send.buffer.bytes": "send_buffer_bytes",
    "socket.connection.setup.timeout.max.ms": "socket_connection_setup_timeout_max_ms",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
}


def kafka_python_config(settings: Settings) -> dict[str, Any]:
    """What kafka-python's connections need: servers, names, timeouts and security; nothing of the group.

    Not to be pickled (it may hold an `ssl.SSLContext`): send the settings, and make it where it is used.

    Raises:
        OptionError: A value is not taken, or a certificate cannot be read.
    """
    config: dict[str, Any] = {}
    if settings.get("bootstrap.servers"):
        config["bootstrap_servers"] = [server.strip() for server in settings["bootstrap.servers"].split(",")]
    for name, key in {"client.id": "client_id", "client.dns.lookup": "client_dns_lookup"}.items():
        if settings.get(name):
            config[key] = settings[name]
    for name, key in _NUMBERS.items():
        value = settings.integer(name)
        if value is not None:
            config[key] = value
    protocol = security_protocol(settings)
    config["security_protocol"] = protocol
    if protocol.endswith("SSL"):
        tls = tls_of(settings)
        config |= {"ssl_context": ssl_context(tls), "ssl_check_hostname": tls.check_hostname and tls.verify}
    return config | _sasl(settings)


def _sasl(settings: Settings) -> dict[str, Any]:
    sasl = sasl_of(settings)
    if sasl is None:
        return {}
    config: dict[str, Any] = {"sasl_mechanism": sasl.mechanism}
    if sasl.username:
        config |= {"sasl_plain_username": sasl.username, "sasl_plain_password": sasl.password}
    if sasl.mechanism == "GSSAPI":
        config["sasl_kerberos_service_name"] = sasl.service_name
    if sasl.oauth is not None:
        # It brings kafka-python with it, which workers that only use librdkafka need not load.
        from kafka_source.kafka_client.oauth import token_provider

        config["sasl_oauth_token_provider"] = token_provider(sasl.oauth)
    return config
