"""Words that a sentence of this project does not have, with their replacements; `./run lint` looks for them.

python -m docs.words
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: CONTRIBUTING.md has the rule behind them: subjects are nouns, and time is previous, current, later.
REPLACEMENTS = {
    "a look": "a check, a lookup, a description, a sample",
    "anew": "again",
    "anybody": "any, and a noun of Kafka's or Spark's documentation",
    "any more": "no longer",
    "as far as": "if, or known",
    "at once": "immediately, together, in one request",
    "first look": "first check, first lookup, first sample",
    "for good": "permanently, finally",
    "go on": "continue",
    "goes on": "continues",
    "in vain": "without an answer, without a result",
    "last look": "last check, last lookup, last sample",
    "likewise": "too, or the fact again",
    "meanwhile": "the event or the time that is meant, or nothing",
    "mend": "fix",
    "mended": "fixed",
    "nobody": "no user, no member, no process",
    "of before": "previous",
    "of now": "current",
    "of then": "earlier",
    "shall": "the present tense",
    "somebody": "a noun of Kafka's or Spark's documentation",
    "tell": "return, report, notify, show, distinguish",
    "telling": "returning, reporting, notifying, showing",
    "tells": "returns, reports, notifies, shows, distinguishes",
    "told": "returned, reported, notified, given",
    "two looks": "two checks, two lookups, two samples",
    "who": "the noun",
    "whoever": "the noun: the owner, the caller, the next reader",
    "whom": "the noun",
}
#: Texts of errors and log lines that tests and pages quote, and a user of that name.
_QUOTED = (
    "tells its clients to use this address",
    "does not tell a Python source its trigger",
    "use a look-ahead",
    "times as far as",
    "could be null and cannot any more",
    "nobody has asked for a batch",
    "kafkagroup group nobody",
    '"nobody"',
    "`nobody`",
    'never "who"',
)
_FILES = ("kafka_source", "kafkagroup", "assignors", "docs", "testbed", "README.md", "CONTRIBUTING.md")


def findings() -> list[str]:
    """Return a line for each word that is found: file, line and replacement."""
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    word = re.compile(rf"(?<!\.)(?<!def )\b({'|'.join(REPLACEMENTS)})\b", re.IGNORECASE)  # not the names of methods
    return [
        f"{name}:{number}: {found[1]!r}: write {REPLACEMENTS[found[1].lower()]}"
        for name in names
        if name.startswith(_FILES) and name != "docs/words.py"
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if not any(text in line for text in _QUOTED)
        for found in word.finditer(line)
    ]


if __name__ == "__main__":
    sys.exit("\n".join(findings()) or 0)
