"""When to connect to `bootstrap.servers` again: the reasons to rebootstrap (KIP-899, KIP-1102).

Pure: the caller passes the time.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recovery:
    """The time since which metadata requests have had no response.

    Attributes:
        trigger: Seconds without metadata after which the client rebootstraps
            (`metadata.recovery.rebootstrap.trigger.ms`); None: never (`metadata.recovery.strategy=none`).
        since: The time of the first metadata request after the last usable response; None: the last request succeeded.
    """

    trigger: float | None
    since: float | None = None

    def asked(self, now: float) -> "Recovery":
        """Return the state after a metadata request: `since` is the time of the first unanswered request."""
        return self if self.since is not None else replace(self, since=now)

    def answered(self) -> "Recovery":
        """Return the state after a response that contains at least one broker."""
        return replace(self, since=None)

    def reason(self, now: float, *, all_unreachable: bool = False, demanded: bool = False) -> str | None:
        """Return the reason to rebootstrap now, or None.

        Args:
            now: The time in the unit and clock of `asked`.
            all_unreachable: Whether no broker of the last metadata can be reached (KIP-899).
            demanded: Whether a broker or proxy responded with REBOOTSTRAP_REQUIRED (129).
        """
        if self.trigger is None:
            return None
        if demanded:
            return "a broker demanded this (REBOOTSTRAP_REQUIRED)"
        if all_unreachable:
            return "none of the known brokers can be reached"
        if self.since is not None and now - self.since >= self.trigger:
            return f"no metadata for {now - self.since:.0f} s"
        return None
