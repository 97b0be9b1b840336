"""The example of KIP-1050's demo loop."""

from collections import Counter

import pytest

from examples.transactional_loop import INJECTED, LINES, main


def test_every_category_is_met_and_every_word_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == Counter(" ".join(LINES).split())
    out = capsys.readouterr().out
    assert out.count("counted:") == len(LINES)
    assert out.count("resuming from the committed offset: Injected by the example: PRODUCER_FENCED (90)") == 1
    assert "a setting must be changed" in out
    assert "INVALID_TRANSACTION_TIMEOUT" in out
    assert len(INJECTED) == 4
