"""Atomic replacement of a file that other processes read at any time."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Replace the file atomically, so that a reader never sees a part of it.

    Raises:
        OSError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
