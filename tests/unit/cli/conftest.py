"""Fixtures for tests of the command line."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the contexts of whoever runs the tests out."""
    monkeypatch.delenv("KAFKAGROUP_CONTEXT", raising=False)
    monkeypatch.setenv("KAFKAGROUP_CONTEXTS", str(tmp_path / "no-contexts.ini"))
