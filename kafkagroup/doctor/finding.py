"""The result of one check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warn", "fail", "skipped"]
"""`ok`: checked. `warn`: it works, but not as well as it could. `fail`: it does not work. `skipped`: unknown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; it contains no secrets.

    Attributes:
        name: The check, for example `broker 1 at kafka-1:9092`.
        state: ok, warn, fail or skipped.
        happened: What was found.
        advice: What to do; empty if there is nothing to do.
    """

    name: str
    state: State
    happened: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.name}: {self.happened}" + (f" {self.advice}" if self.advice else "")


def healthy(findings: Iterable[Finding]) -> bool:
    """Return whether no check failed; warnings and skipped checks are no failures."""
    return all(finding.state != "fail" for finding in findings)


def document(findings: Iterable[Finding]) -> dict[str, object]:
    """Return the findings as a JSON document: `healthy`, and `findings` with the fields of `Finding`."""
    listed = list(findings)
    return {"healthy": healthy(listed), "findings": [asdict(finding) for finding in listed]}
