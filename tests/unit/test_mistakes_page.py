"""The page of mistakes has each mistake, answered in few lines; what the driver refuses is told as the page says."""

from __future__ import annotations

import pytest

from docs.mistakes import CONNECT, MISTAKES, OVER_CONNECT, At, How, Mistake, rows_of_page
from docs.try_mistakes import told, told_by_program

ROWS = rows_of_page()
REFUSED_BY_DRIVER = [one for one in MISTAKES if one.at is At.NONE and one.how in (How.BATCH, How.STREAM, How.WRITE)]


@pytest.mark.parametrize("mistake", REFUSED_BY_DRIVER, ids=lambda one: one.shown)
def test_a_mistake_is_answered_in_one_line_that_names_an_option(mistake: Mistake) -> None:
    answer = mistake.answer()
    assert "\n" not in answer
    assert len(answer) < 300
    assert any(name.lower() in answer.lower() for name in (*mistake.typed, *mistake.without))
    (row,) = [row for row in ROWS if (row.section, row.shown) == (mistake.section, mistake.shown)]
    assert row.sentence == answer, "run: ./run python -m docs.try_mistakes"


def test_the_page_has_each_mistake_and_its_answer_is_short_and_early() -> None:
    classic = [(one.section, one.shown) for one in MISTAKES]
    assert [(row.section, row.shown) for row in ROWS] == classic + [(CONNECT, one.shown) for one in OVER_CONNECT]
    assert len(classic) >= 40
    assert len(OVER_CONNECT) >= 10
    # What was measured when the page was written; nothing is measured here.
    assert [row for row in ROWS if row.lines > 10 or row.seconds > 10] == []


BOUNDARY = """  File "/project/kafka_source/boundary.py", line 42, in call
    raise error.with_traceback(None) from None
kafka_source.errors.OptionError: It is broken. Mend it."""


def test_lines_of_ours_are_told_from_those_of_spark() -> None:
    spark = '[X_ERROR] Failed: Traceback (most recent call last):\n  File "/lib/pyspark/worker.py", line 1, in main\n'
    assert told(f"{spark}{BOUNDARY}\n SQLSTATE: 38000\n\tat org.apache.spark.X(X.scala:1)") == (
        "It is broken. Mend it.",
        3,
    )
    for twice in (f"{BOUNDARY}\n{BOUNDARY}", "nothing of ours"):
        with pytest.raises(LookupError):
            told(twice)


def test_a_program_says_its_sentence_last() -> None:
    frame = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n    run()\n'
    assert told_by_program(f"{frame}{BOUNDARY}")[1] == 3
    assert told_by_program("Usage: kafkagroup\n\nError: No such option.") == ("Error: No such option.", 2)
