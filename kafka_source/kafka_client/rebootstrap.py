"""When a client starts over from `bootstrap.servers` (KIP-899, KIP-1102). Pure: it is told the time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long metadata has been wanted in vain.

    Attributes:
        trigger: Seconds after which the client starts over (`metadata.recovery.rebootstrap.trigger.ms`); None: it
            never does (`metadata.recovery.strategy=none`).
        since: When metadata was first asked for without an answer that names a broker; None: it is not wanted now.
    """

    trigger: float | None
    since: float | None = None

    def asked(self, now: float) -> Recovery:
        """Metadata is asked for; the time of the first try counts."""
        return self if self.since is not None else replace(self, since=now)

    def answered(self) -> Recovery:
        """A response that names one broker or more has come."""
        return replace(self, since=None)

    def reason(self, now: float, *, nobody_left: bool = False, told_to: bool = False) -> str | None:
        """Why to start over now, or None.

        Args:
            now: The time.
            nobody_left: No broker of the last metadata can be reached (KIP-899).
            told_to: A broker or proxy answered REBOOTSTRAP_REQUIRED (129).
        """
        if self.trigger is None:
            return None
        if told_to:
            return "a broker asked for it (REBOOTSTRAP_REQUIRED)"
        if nobody_left:
            return "none of the known brokers can be reached"
        if self.since is not None and now - self.since >= self.trigger:
            return f"no metadata for {now - self.since:.0f} s"
        return None
