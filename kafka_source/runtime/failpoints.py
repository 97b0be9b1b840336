"""Moments at which a fault test may kill this process; nothing happens anywhere else."""

from __future__ import annotations

import os
import signal

_VARIABLE = "KAFKAGROUP_FAILPOINT"


def failpoint(name: str) -> None:
    """Dies by SIGKILL here if the environment variable KAFKAGROUP_FAILPOINT names this moment."""
    if os.environ.get(_VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
