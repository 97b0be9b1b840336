"""Words that a sentence of this project does not have, with their replacements; `./run lint` looks for them.

python -m docs.words
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: CONTRIBUTING.md has the rule behind them: subjects are nouns, and time is previous, current, later.
REPLACEMENTS = {
    "anew": "again",
    "of before": "previous",
    "of now": "current",
    "of then": "earlier",
    "Anybody": "any user, any process",
    "Nobody": "no user, no member, no process",
    "anybody": "any, and a noun of Kafka's or Spark's documentation",
    "in vain": "without an answer, without a result",
    "somebody": "a noun of Kafka's or Spark's documentation",
    "telling": "returning, reporting, notifying",
    "tell": "return, report, notify, show, distinguish",
    "tells": "returns, reports, notifies, shows, distinguishes",
    "told": "returned, reported, notified, given",
    "whoever": "the noun: the owner, the caller, the next reader",
}
#: Texts of errors and log lines that tests and pages quote.
_QUOTED = ("tells its clients to use this address", "does not tell a Python source its trigger")
_FILES = ("kafka_source", "kafkagroup", "assignors", "docs", "testbed", "README.md", "CONTRIBUTING.md")


def findings() -> list[str]:
    """Return a line for each word that is found: file, line and replacement."""
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    word = re.compile(rf"\b({'|'.join(REPLACEMENTS)})\b")
    return [
        f"{name}:{number}: {found[1]!r}: write {REPLACEMENTS[found[1]]}"
        for name in names
        if name.startswith(_FILES) and name != "docs/words.py"
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        for found in word.finditer(line)
        if not any(text in line for text in _QUOTED)
    ]


if __name__ == "__main__":
    sys.exit("\n".join(findings()) or 0)
