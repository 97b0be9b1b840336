"""The most similar name to suggest if a topic or group does not exist."""

import difflib
from collections.abc import Iterable

# At this similarity (difflib's ratio) a name counts as a misspelling.
_CUTOFF = 0.75


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name, after a space; empty if no name is similar."""
    near = difflib.get_close_matches(name, sorted(set(known) - {name}), n=1, cutoff=_CUTOFF)
    return f" Did you mean {near[0]}?" if near else ""
