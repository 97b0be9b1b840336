from kafka_source.kafka_client import Recovery


def test_the_time_counts_from_the_first_try_in_vain() -> None:
    wanted = Recovery(300.0).asked(10.0).asked(100.0)
    assert wanted.reason(309.0) is None
    assert wanted.reason(310.0) == "no metadata for 300 s"
    assert wanted.answered().reason(1e9) is None


def test_it_starts_over_at_once_if_nobody_is_left_or_if_told_to() -> None:
    fresh = Recovery(300.0)
    assert fresh.reason(0.0) is None
    assert fresh.reason(0.0, all_unreachable=True) == "none of the known brokers can be reached"
    assert fresh.reason(0.0, demanded=True) == "a broker demanded this (REBOOTSTRAP_REQUIRED)"


def test_the_strategy_none_never_starts_over() -> None:
    never = Recovery(None).asked(0.0)
    assert never.reason(1e9, all_unreachable=True, demanded=True) is None
