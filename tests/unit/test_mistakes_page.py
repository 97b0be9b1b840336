"""Each of the mistakes of docs/mistakes.md is refused in one line, and the page says what is told today."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.mistakes import MISTAKES, Mistake, page


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.shown)
def test_a_mistake_is_answered_in_one_line_that_names_an_option(mistake: Mistake) -> None:
    answer = mistake.answer()
    assert "\n" not in answer
    assert len(answer) < 300
    assert any(name.lower() in answer.lower() for name in (*mistake.typed, *mistake.without))


def test_the_page_is_current() -> None:
    assert len(MISTAKES) >= 40
    assert (Path(__file__).parents[2] / "docs" / "mistakes.md").read_text() == page(), "run: ./run docs"
