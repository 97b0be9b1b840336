"""How many bytes and records a second a quota allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

_NAMES = {"bytes_per_second", "records_per_second", "enabled", "clients"}

Amounts = tuple[float, float]
"""Bytes and records."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes and records a second; None: any number."""

    bytes_per_second: float | None = None
    records_per_second: float | None = None

    def share(self, part: float) -> Bounds:
        """Return the bounds of a part of the whole."""
        return Bounds(*(None if amount == inf else amount for amount in self.amounts(part)))

    def amounts(self, seconds: float) -> Amounts:
        """Return the bytes and records that so many seconds allow; inf: any number."""
        by_bytes, by_records = self.bytes_per_second, self.records_per_second
        return inf if by_bytes is None else by_bytes * seconds, inf if by_records is None else by_records * seconds


UNBOUNDED = Bounds()


def read_document(document: Any, client_id: str, otherwise: Bounds) -> Bounds:
    """Return the bounds that a watched document sets for a client id.

        {"bytes_per_second": 1000000, "records_per_second": null, "enabled": true,
         "clients": {"orders-etl": {"enabled": false}}}

    The entry of the client id takes precedence over the top level. A missing name leaves the bound of the options,
    null removes it, and `"enabled": false` removes both.

    Args:
        document: The parsed JSON.
        client_id: The query's `kafka.client.id`.
        otherwise: The bounds of the options.

    Raises:
        ValueError: The document is not of this form.
    """
    whole = _entry(document)
    if not isinstance(clients := whole.get("clients", {}), dict):
        raise ValueError("clients must be an object of client ids")
    settings = {**whole, **_entry(clients.get(client_id, {}))}
    if not settings.get("enabled", True):
        return UNBOUNDED
    return Bounds(**{name: _number(settings, name, otherwise) for name, otherwise in asdict(otherwise).items()})


def _entry(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError('a quota must be an object such as {"bytes_per_second": 1000000}')
    if unknown := sorted(set(value) - _NAMES):
        raise ValueError(f"there is no {unknown[0]}; known are {', '.join(sorted(_NAMES))}")
    if not isinstance(value.get("enabled", True), bool):
        raise ValueError("enabled must be true or false")
    return value


def _number(settings: Mapping[str, Any], name: str, otherwise: float | None) -> float | None:
    value = settings.get(name, otherwise)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name} must be a number above 0, or null")
    return None if value is None else float(value)
