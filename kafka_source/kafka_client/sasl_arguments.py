"""The SASL settings of a client, as arguments for kafka-python's mechanisms."""

from __future__ import annotations

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import sasl_of
from kafka_source.kafka_client.kerberos import KEYTAB, PRINCIPAL
from kafka_source.kafka_client.oauth import token_provider


def sasl_arguments(settings: Settings) -> dict[str, object] | None:
    """Return the keyword arguments of a `kafka.net.sasl` mechanism; None if the security protocol has no SASL.

    They contain secrets in clear text, and perhaps a token provider with a lock: never log or pickle them.

    Raises:
        OptionError: The mechanism is unknown, or one of its settings is missing.
    """
    sasl = sasl_of(settings)
    if sasl is None:
        return None
    arguments: dict[str, object] = {
        "sasl_mechanism": sasl.mechanism,
        # This value is independent of the actual protocol: with SASL_PLAINTEXT the mechanisms of kafka-python would
        # log a warning for each connection.
        "security_protocol": "SASL_SSL",
    }
    if sasl.username:
        arguments |= {"sasl_plain_username": sasl.username, "sasl_plain_password": sasl.password}
    if sasl.mechanism == "GSSAPI":
        arguments["sasl_kerberos_service_name"] = sasl.service_name
        login = {KEYTAB: sasl.keytab, PRINCIPAL: sasl.principal}
        arguments |= {name: value for name, value in login.items() if value}
    if sasl.oauth is not None:
        arguments["sasl_oauth_token_provider"] = token_provider(sasl.oauth)
    return arguments
