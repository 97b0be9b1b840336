import pytest

from kafka_source.errors import OptionError
from kafka_source.model import topic_pattern
from kafka_source.model.topic_pattern import matching

BACKTRACKS = "^(team-)*([a-z]+-?)+$"
# Of 60 letters, and one character at which the pattern has to try every other way.
ENDLESS = "a" * 60 + "_"


def test_names_that_contain_a_match_are_found_sorted_and_without_internal_topics() -> None:
    names = ["orders", "my-orders", "clicks", "__consumer_offsets", "__transaction_state"]
    assert matching("orders", names) == ["my-orders", "orders"]
    assert matching("^orders$", names) == ["orders"]
    assert matching("_", names) == []
    assert matching("orders", ["new-orders", "clicks"]) == ["new-orders"]
    assert matching(BACKTRACKS, ["team-a-b", "Team"]) == ["team-a-b"]
    assert matching("a", []) == []


def test_a_name_for_which_the_pattern_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "_SEARCH_SECONDS", 1)
    with pytest.raises(OptionError, match=rf"for topic {ENDLESS} the search takes longer than 1 s") as caught:
        matching(BACKTRACKS, ["team-a", ENDLESS, "z"])
    assert BACKTRACKS in str(caught.value)
    assert matching(BACKTRACKS, ["team-a", "z"]) == ["team-a", "z"]
