"""Search texts for a regular expression, without the risk that one of them takes for ever.

Python's `re` backtracks: an expression and a text of a few dozen characters can take years, and no other thread of the
process runs meanwhile, nor a signal's handler. So a process of its own searches, and the kernel ends it when it has
used its processor time, also if its parent has ended.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

_PROGRAM = """
import json, re, resource, sys
pattern, texts, seconds = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
search = re.compile(pattern).search
for text in texts:
    print(int(search(text) is not None), end="", flush=True)
"""


class SearchTooLong(Exception):  # noqa: N818 - what happened
    """The search has used up its time.

    Attributes:
        text: The text at which it did.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def search(pattern: str, texts: Sequence[str], seconds: int) -> list[bool]:
    """Return for each text whether it contains a match of the pattern (`re.search`). It blocks, without the GIL.

    Args:
        pattern: A regular expression that compiles.
        texts: The texts.
        seconds: The processor time for all texts, with the start of the process (some hundredths).

    Raises:
        SearchTooLong: It takes longer; names the text.
        OSError: No process can be started.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM],
        input=json.dumps([pattern, list(texts), seconds]),
        capture_output=True,
        text=True,
        check=False,
    )
    if len(done.stdout) == len(texts):
        return [outcome == "1" for outcome in done.stdout]
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise SearchTooLong(texts[len(done.stdout)])
    raise OSError(f"a process that searches has ended with {done.returncode}: {done.stderr[-500:]}")
