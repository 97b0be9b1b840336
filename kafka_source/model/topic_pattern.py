"""The topics that match `subscribePattern`, for a query and for a group's leader; the time limit of the search.

Python's `re` backtracks: the search of a text of a few dozen characters can take years. During this time neither
another thread of the process nor a signal handler runs. So a separate process searches. The kernel ends this process
when it has used its processor time, even if its parent has ended.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence

from kafka_source.errors import OptionError

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
        text: The searched text.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def search(pattern: str, texts: Sequence[str], seconds: int) -> list[bool]:
    """Return for each text whether it contains a match of the pattern (`re.search`). The call blocks; the GIL is free.

    Args:
        pattern: A regular expression that compiles.
        texts: The texts.
        seconds: The processor time for all texts, and for the start of the process (some hundredths of a second).

    Raises:
        SearchTooLong: The search takes longer than `seconds`; the error names the text.
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
    raise OSError(f"the process that searches has ended with code {done.returncode}: {done.stderr[-500:]}")


# Kafka's internal topics (`org.apache.kafka.common.internals.Topic`).
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# Processor time for all new names of a lookup. 100,000 names take a tenth of a second with a harmless pattern.
_SEARCH_SECONDS = 5
_MAX_PATTERNS = 16
# Whether the topics of the last lookup match, by pattern and name. The inner mappings do not change, because queries of
# one process look topics up at the same time.
_judged: dict[str, dict[str, bool]] = {}


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that contain a match of the pattern (Spark's semantics), sorted, without internal topics.

    This call blocks while it matches new names, so call it from an event loop in a thread.

    Raises:
        OptionError: The pattern takes too long for one of the names.
    """
    wanted = sorted(set(names) - _INTERNAL)
    known = dict(_judged.get(pattern, {}))
    # A user with the permission to create topics may choose a name for which the search never ends.
    new = [name for name in wanted if name not in known]
    if new:
        try:
            known.update(zip(new, search(pattern, new, _SEARCH_SECONDS), strict=True))
        except SearchTooLong as error:
            raise OptionError(
                "subscribePattern",
                pattern,
                f"a pattern that needs little time for each topic name; for topic {error.text} the search takes longer "
                f"than {_SEARCH_SECONDS} s, because repetitions in the pattern contain or follow each other. Write the "
                "pattern so that it matches a name in only one way, for example ^[a-z-]+$ instead of ^([a-z]+-?)+$",
            ) from None
    _judged[pattern] = {name: known[name] for name in wanted}
    if len(_judged) > _MAX_PATTERNS:
        _judged.pop(next(iter(_judged)), None)
    return [name for name in wanted if known[name]]
