"""What is let through a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMES = {"bytes_per_second", "records_per_second", "enabled", "clients"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes and records a second; None: any number."""

    bytes_per_second: float | None = None
    records_per_second: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return self.bytes_per_second is not None or self.records_per_second is not None

    def share(self, part: float) -> Bounds:
        """The bounds of a part of the whole."""
        return Bounds(
            None if self.bytes_per_second is None else self.bytes_per_second * part,
            None if self.records_per_second is None else self.records_per_second * part,
        )


UNBOUNDED = Bounds()


def read_document(document: Any, client_id: str, otherwise: Bounds) -> Bounds:
    """The bounds that a watched document sets for a client id.

        {"bytes_per_second": 1000000, "records_per_second": null, "enabled": true,
         "clients": {"orders-etl": {"enabled": false}}}

    What stands under the client's own id goes before what stands at the top; what stands nowhere is as the options say,
    null is no bound, and `"enabled": false` is no bound at all.

    Args:
        document: The parsed JSON.
        client_id: The query's.
        otherwise: What the options say.

    Raises:
        ValueError: It is no such document.
    """
    whole = _entry(document)
    clients = whole.get("clients", {})
    if not isinstance(clients, dict):
        raise ValueError("clients must be an object of client ids")
    settings = {**whole, **_entry(clients.get(client_id, {}))}
    if not settings.get("enabled", True):
        return UNBOUNDED
    return Bounds(
        _number(settings, "bytes_per_second", otherwise.bytes_per_second),
        _number(settings, "records_per_second", otherwise.records_per_second),
    )


def _entry(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError('a quota must be an object such as {"bytes_per_second": 1000000}')
    unknown = sorted(set(value) - _NAMES)
    if unknown:
        raise ValueError(f"there is no {unknown[0]}; known are {', '.join(sorted(_NAMES))}")
    if not isinstance(value.get("enabled", True), bool):
        raise ValueError("enabled must be true or false")
    return value


def _number(settings: Mapping[str, Any], name: str, otherwise: float | None) -> float | None:
    value = settings.get(name, otherwise)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} must be a number above 0, or null")
    return float(value)
