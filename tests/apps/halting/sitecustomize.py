"""Halt a process of an application at a failpoint, so that a test can kill the application there.

Each Python process that starts with this folder in its `PYTHONPATH` imports this module. `HALT_AT` is the failpoint,
`HALT_AFTER` how often the application passes it, in all its processes, and `HALT_FOLDER` where they count.
"""

import os
import time
import uuid
from pathlib import Path

from kafka_source.runtime import failpoints


def _halt(name: str) -> None:
    if name != os.environ["HALT_AT"]:
        return
    passed = Path(os.environ["HALT_FOLDER"])
    (passed / uuid.uuid4().hex).touch()
    if len(list(passed.iterdir())) > int(os.environ["HALT_AFTER"]):
        (passed.parent / "halted").touch()
        while True:
            time.sleep(60)


if "HALT_AT" in os.environ:
    failpoints.install(_halt)
