"""The page of mistakes: all of them made again, in classic Spark and over Spark Connect."""

import re

import pytest

from tests.mistakes.attempts import all_rows
from tests.mistakes.catalog import Row, rows_of_page


def beginning(row: Row) -> str:
    """Return the first words of a row's sentence, without the number of a partition.

    Behind them is what another machine may say in another way. Of two partitions, either may be told of first.
    """
    return re.sub(r"(orders|enriched)-\d", r"\1-N", row.sentence)[:40]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_mistake_is_answered_as_the_page_says() -> None:
    rows, page = all_rows(), rows_of_page()
    assert [(row.section, row.shown) for row in rows] == [(row.section, row.shown) for row in page]
    assert [row for row in rows if row.lines > 10] == []
    assert [beginning(row) for row in rows] == [beginning(row) for row in page]
