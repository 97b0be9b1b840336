"""Messages of SASL."""

from collections.abc import Sequence

from kafka_source.kafka_client.messages.tables import Request, Structure, array, field, int16, int64, raw, string


class SaslAuthenticateResponse(Structure):
    error_code: int = field(int16)
    error_message: str | None = field(string, null_since=0)
    auth_bytes: bytes = field(raw, secret=True)
    session_lifetime_ms: int = field(int64, since=1)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], api=36, versions=(0, 2), flexible_from=2):
    auth_bytes: bytes = field(raw, secret=True)


class SaslHandshakeResponse(Structure):
    error_code: int = field(int16)
    mechanisms: Sequence[str] = field(array(string))


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api=17, versions=(0, 1)):
    mechanism: str = field(string)
