"""Client settings as the user gave them, with their secrets kept out of sight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_source.client_config.jaas import LoginModule, parse_jaas
from kafka_source.errors import OptionError

HIDDEN = "*****"
DEFAULT_CLIENT_ID = "kafkagroup"

_SECRET_WORDS = ("password", "passphrase", "secret", "jaas", "token", "credential", "user.info")
_SECRET_NAMES = frozenset({"ssl.keystore.key", "ssl.key.pem", "sasl.oauthbearer.config"})
_PUBLIC_NAMES = frozenset({"sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.credentials.client.id"})


class Settings(Mapping[str, str]):
    """Settings of the Kafka clients by their Java (or librdkafka) names, without the prefix `kafka.`.

    Immutable and hashable. Names are lower case, as all of Kafka's are; values are as given, without surrounding
    blanks. `repr`, `str` and a `Settings` in a log line or an error show `*****` for secrets; pickling keeps them,
    since executors need them.

    Args:
        values: Names and values, e.g. `{"bootstrap.servers": "broker:9092"}`.
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {str(name).lower(): str(value).strip() for name, value in values.items()}
        self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._values == other._values

    def __repr__(self) -> str:
        return f"Settings({hidden(self._values)!r})"

    def __reduce__(self) -> tuple[type[Settings], tuple[dict[str, str]]]:
        return Settings, (dict(self._values),)

    def integer(self, name: str) -> int | None:
        """The value of a whole number, None if it is not set.

        Raises:
            OptionError: It is none.
        """
        try:
            return int(self._values[name]) if name in self._values else None
        except ValueError:
            raise OptionError(f"kafka.{name}", self._values[name], "a whole number") from None

    def seconds(self, name: str, default_ms: int) -> float:
        """The value of a setting in ms, as seconds.

        Raises:
            OptionError: It is no whole number.
        """
        given = self.integer(name)
        return (default_ms if given is None else given) / 1000

    def client_id(self, purpose: str = "") -> str:
        """The id under which the brokers know a client.

        Args:
            purpose: "" for the fetchers and producers, which have `client.id` itself, as quotas of it are meant for
                them. What must not be held up by these quotas has its purpose behind it, e.g. "driver".
        """
        own = self.get("client.id") or DEFAULT_CLIENT_ID
        return f"{own}-{purpose}" if purpose else own

    def login_module(self) -> LoginModule | None:
        """The login module of `sasl.jaas.config`, None if it is not set."""
        text = self.get("sasl.jaas.config")
        return parse_jaas(text) if text else None


def is_secret(name: str) -> bool:
    """Whether the value of a setting, or of a login module's option, is nobody's business."""
    name = name.lower()
    bare = name.removeprefix("kafka.")
    return bare not in _PUBLIC_NAMES and (bare in _SECRET_NAMES or any(word in bare for word in _SECRET_WORDS))


def hidden(config: Mapping[str, object]) -> dict[str, object]:
    """A copy of a configuration that may be shown: secrets, and what is no plain value, are `*****`."""
    return {
        name: value if isinstance(value, (str, int, float)) and not is_secret(name.replace("_", ".")) else HIDDEN
        for name, value in config.items()
    }
