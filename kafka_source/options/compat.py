"""Look-up of options by name, for modules that do not use the typed fields yet; to be removed with the last of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_source.options.declaration import declared_in

if TYPE_CHECKING:
    from kafka_source.client_config import Settings


class LookedUpByName:
    """What `Options` was before it had fields."""

    __slots__ = ()

    if TYPE_CHECKING:
        settings: Settings

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option by its name, also by the one that it had before."""
        key = name.lower()
        for field, one in declared_in(type(self)).items():
            if key in (one.name.lower(), one.formerly.lower()):
                return getattr(self, field)
        raise KeyError(name)

    def given(self, name: str) -> bool:
        """Return whether an option has another value than its default."""
        key = name.lower()
        return any(
            getattr(self, field) != one.default
            for field, one in declared_in(type(self)).items()
            if key in (one.name.lower(), one.formerly.lower())
        )

    @property
    def kafka(self) -> Settings:
        """The settings of the Kafka clients."""
        return self.settings

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of all options."""
        return {one.name.lower(): getattr(self, field) for field, one in declared_in(type(self)).items()}
