"""Client settings as the user gave them: hidden secrets, numbers and times, the `client.id`."""

import os
import re
from collections.abc import Iterator, Mapping

from kafka_source.client_config import config_providers
from kafka_source.client_config.jaas import LoginModule, parse_jaas
from kafka_source.errors import OptionError

HIDDEN = "*****"
DEFAULT_CLIENT_ID = "kafkagroup"

_SECRET_WORDS = ("password", "passphrase", "secret", "jaas", "token", "credential", "user.info")
# A text with certificates may contain the private key too.
_SECRET_NAMES = frozenset(
    {
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.pem",
        "ssl.certificate.pem",
        "sasl.oauthbearer.config",
    }
)
_PUBLIC_NAMES = frozenset(
    {
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.token.provider",
        "sasl.oauthbearer.client.credentials.client.id",
    }
)
_FROM_ENVIRONMENT = "env:"

_LOGIN_IN_URL = re.compile(r"//[^\s,]*@")


class Settings(Mapping[str, str]):
    """Settings of the Kafka clients by their Java (or librdkafka) names, without the prefix `kafka.`.

    Immutable and hashable. Names become lower case, like all of Kafka's names; values lose surrounding blanks. `repr`
    and `str` show `*****` for secrets, and so do log lines and errors. A pickled object has the secrets, for executors.

    Values with variables (`config.providers`), and a `client.rack` of the form `env:NAME`, are resolved by each process
    at the first access. Only the text that the user wrote is pickled, compared and shown.

    Args:
        values: Names and values, e.g. `{"bootstrap.servers": "broker:9092"}`.
    """

    __slots__ = ("_given", "_hash", "_resolved")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._given = {str(name).lower(): str(value).strip() for name, value in values.items()}
        self._hash = hash(frozenset(self._given.items()))
        self._resolved: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._given == other._given

    def __repr__(self) -> str:
        return f"Settings({hidden(self._given)!r})"

    def __reduce__(self) -> "tuple[type[Settings], tuple[dict[str, str]]]":
        return Settings, (dict(self._given),)

    @property
    def given(self) -> Mapping[str, str]:
        """The settings as the user wrote them, with unresolved variables."""
        return dict(self._given)

    def shown(self, name: str) -> str:
        """Return a setting for an error or a log line, with unresolved variables; the value of a secret is hidden."""
        return str(shown(name, self._given[name]))

    @property
    def _values(self) -> dict[str, str]:
        if self._resolved is None:
            self._resolved = _resolved(self._given)
        return self._resolved

    def integer(self, name: str) -> int | None:
        """Return the setting as a whole number; None if it is not set.

        Raises:
            OptionError: The value is not a whole number.
        """
        try:
            return int(self._values[name]) if name in self._values else None
        except ValueError:
            raise OptionError(f"kafka.{name}", self.shown(name), "a whole number") from None

    def seconds(self, name: str, default_ms: int) -> float:
        """Return a setting in milliseconds as seconds.

        Args:
            name: The setting's name.
            default_ms: The value in milliseconds if the setting is missing.

        Raises:
            OptionError: The value is not a whole number.
        """
        given = self.integer(name)
        return (default_ms if given is None else given) / 1000

    def reconnect_backoff_ms(self) -> tuple[int, int]:
        """Return the first and the longest pause before a new connection to the same broker, by Java's rule.

        If only the first pause is set, the longest pause is equal. The first pause is never longer than the longest.

        Raises:
            OptionError: A value is not a whole number.
        """
        first, longest = self.integer("reconnect.backoff.ms"), self.integer("reconnect.backoff.max.ms")
        if longest is None:
            longest = 1_000 if first is None else first
        return min(50 if first is None else first, longest), longest

    def client_id(self, purpose: str = "") -> str:
        """Return the `client.id` of a client, by which brokers identify it for quotas and in logs and metrics.

        Args:
            purpose: Empty for fetchers and producers, which client quotas throttle. Other clients, for example the
                driver's, append their purpose to the `client.id`, so that the quotas do not apply.
        """
        own = self.get("client.id") or DEFAULT_CLIENT_ID
        return f"{own}-{purpose}" if purpose else own

    def login_module(self) -> LoginModule | None:
        """Return the login module of `sasl.jaas.config`; None if it is not set.

        Raises:
            OptionError: The value is not exactly one login module.
        """
        text = self.get("sasl.jaas.config")
        return parse_jaas(text) if text else None


def is_secret(name: str) -> bool:
    """Return whether the value of a setting, or of a login module's option, is a secret that must not be shown."""
    name = name.lower()
    bare = name.removeprefix("kafka.")
    return bare not in _PUBLIC_NAMES and (bare in _SECRET_NAMES or any(word in bare for word in _SECRET_WORDS))


def hidden(config: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of a configuration that can be shown: secrets and values that are not scalars become `*****`."""
    given: Mapping[str, object] = config.given if isinstance(config, Settings) else config
    return {name: shown(name.replace("_", "."), value) for name, value in given.items()}


def shown(name: str, value: object) -> str | int | float:
    """Return a value that can be shown: secrets, logins in URLs, and values that are not scalars become `*****`."""
    if is_secret(name) or not isinstance(value, (str, int, float)):
        return HIDDEN
    return _LOGIN_IN_URL.sub(f"//{HIDDEN}@", value) if isinstance(value, str) else value


def _resolved(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values, with variables resolved in this process."""
    values = config_providers.resolve(given) if "config.providers" in given else dict(given)
    rack = values.get("client.rack", "")
    if rack.startswith(_FROM_ENVIRONMENT):
        found = os.environ.get(rack.removeprefix(_FROM_ENVIRONMENT), "").strip()
        if found:
            values["client.rack"] = found
        else:
            # A process without the variable, such as the driver, is in no rack.
            del values["client.rack"]
    return values
