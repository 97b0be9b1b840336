"""The table of `watch`: no figure is cut in a terminal of 80 columns, and the line of the lag takes what is left."""

import io

import pytest
from rich.console import Console

from assignors.model import TopicPartition
from kafkagroup.admin.rows import Rows
from kafkagroup.admin.watch_rates import SAMPLES, WatchMember, WatchPartition, WatchRow, WatchRows
from kafkagroup.cli.tables import watch_table

LINE = "▁▂▃▄▅▆▇█" * (SAMPLES // 8)
LONG = "reports-of-the-whole-company"


def shown(rows: WatchRows, lines: dict[str, str], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(watch_table(rows, lines, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def group(name: str, state: str = "Stable") -> WatchRow:
    return WatchRow(name, state, 12, 1_234_567, 0, 1000.4, 2000.4, 3725.0, 3)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("name", ["billing", LONG])
@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_no_figure_is_cut(name: str, state: str, width: int) -> None:
    text = shown(Rows(WatchRow, [group(name, state)]), {name: LINE}, width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("rebalances", "to zero", "1,234,567", "1,000", "2,000", "1h 2m"):
        assert word in text
    columns = "".join(line[: text.index("state")].strip() for line in text.splitlines()[2:])
    assert columns == name, "a long name is folded"


def test_the_end_of_the_line_of_the_lag_is_shown() -> None:
    wide = shown(Rows(WatchRow, [group("billing")]), {"billing": LINE}, 120)
    narrow = shown(Rows(WatchRow, [group("billing")]), {"billing": LINE}, 80)
    assert LINE in wide
    assert LINE not in narrow
    assert LINE[-5:] in narrow
    assert "trend" not in shown(Rows(WatchRow, [group(LONG)]), {LONG: LINE}, 80), "there is no room for it"


def test_members_have_rows_of_their_own() -> None:
    members = [
        WatchMember("billing", "etl-0", 3, 1_234_567, 1000.4, 2000.4, 3725.0),
        WatchMember("billing", None, 2, 12, None, None, None),
    ]
    text = shown(Rows(WatchMember, members), {}, 80)
    assert "…" not in text
    first, last = text.splitlines()[2:]
    assert first.split() == ["billing", "etl-0", "3", "1,234,567", "1,000", "2,000", "1h", "2m"]
    assert last.split() == ["billing", "none", "2", "12", "-", "-", "-"]


def test_a_time_beyond_the_year_9999_is_a_number() -> None:
    times = {TopicPartition("t", 0): 1_700_000_000_123, TopicPartition("t", 1): 1_700_000_000_123_456}
    rows = Rows(WatchPartition, WatchPartition.of_group("g", dict.fromkeys(times, 5), times))
    first, last = shown(rows, {}, 80).splitlines()[2:]
    assert first.split() == ["g", "t-0", "5", "2023-11-14T22:13:20.123Z", "0s"]
    assert last.split()[:7] == ["g", "t-1", "5", "1700000000123456", "ms", "since", "1970"]
