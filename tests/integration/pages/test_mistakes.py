"""The page of mistakes: all of them made again, in classic Spark and over Spark Connect."""

from __future__ import annotations

import pytest

from docs.mistakes import rows_of_page
from docs.try_mistakes import all_rows


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_mistake_is_answered_as_the_page_says() -> None:
    rows, page = all_rows(), rows_of_page()
    assert [(row.section, row.shown) for row in rows] == [(row.section, row.shown) for row in page]
    assert [row for row in rows if row.lines > 10] == []
    # Behind their first words sentences have what another machine may say in another way.
    assert [row.sentence[:40] for row in rows] == [row.sentence[:40] for row in page]
