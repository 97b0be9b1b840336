"""Errors that leave for Spark are short: their sentence, without our frames, unless the log is at DEBUG."""

import logging
import traceback
from collections.abc import Iterator

import pytest

from kafka_source.boundary import short_errors
from kafka_source.datasource import KafkaGroupSource
from kafka_source.errors import KafkaGroupError

SENTENCE = "It is broken. Mend it."


@short_errors
class Reader:
    """Fails as a reader does that Spark calls."""

    def plan(self) -> int:
        """Fail in a frame of its own, because of another error."""
        return self._fail()

    def read(self) -> Iterator[int]:
        """Yield, then fail."""
        yield 1
        self._fail()

    def wrong(self) -> None:
        """Fail with an error that is not ours: a bug, whose frames are needed."""
        self._bug()

    def _fail(self) -> int:
        try:
            raise OSError("inner")
        except OSError as error:
            raise KafkaGroupError(SENTENCE) from error

    def _bug(self) -> None:
        raise AssertionError("a bug")


def text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_sentence_is_there_once_without_frames_and_causes() -> None:
    for fail in (lambda: Reader().plan(), lambda: list(Reader().read())):
        with pytest.raises(KafkaGroupError) as caught:
            fail()
        text = text_of(caught.value)
        assert text.count(SENTENCE) == 1
        assert "_fail" not in text
        assert "inner" not in text


def test_a_bug_keeps_its_frames() -> None:
    with pytest.raises(AssertionError) as caught:
        Reader().wrong()
    assert "_bug" in text_of(caught.value)


def test_debug_shows_the_frames(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="kafka_source"), pytest.raises(KafkaGroupError) as caught:
        Reader().plan()
    assert "_fail" in text_of(caught.value)


def test_an_error_in_the_options_has_at_most_ten_lines_of_ours() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "failOnDataLoss": "maybe"}
    with pytest.raises(KafkaGroupError) as caught:
        KafkaGroupSource(options).schema()
    lines = text_of(caught.value).splitlines()
    assert sum("kafka_source" in line for line in lines) <= 2
    assert lines[-1].endswith("Option failOnDataLoss got 'maybe'; it takes true or false.")
