"""Rows as tables, JSON and CSV."""

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from assignors import TopicPartition
from kafka_source.errors import AuthenticationError
from kafkagroup.admin import Groups, GroupSummary, PartitionLag, Rows
from kafkagroup.admin.rows import MemberDescription
from kafkagroup.cli.app import app
from kafkagroup.cli.common import Selection, as_csv, as_json, emit, exit_on_error, note, parse_topics
from kafkagroup.cli.output import Listing, Output, cell, partitions_text
from kafkagroup.cli.tables import widths

LAG = Rows(PartitionLag, [PartitionLag("orders", 0, 7, 10, "app-0"), PartitionLag("orders", 1, None, 10, None)])
LONG = "a-group-with-a-name-that-is-longer-than-a-terminal-has-columns-because-it-names-its-team-and-its-purpose"


def test_json_of_one_listing_is_an_array_and_of_several_an_object() -> None:
    one, two = Listing("lag", LAG), Listing("groups", Rows(GroupSummary))
    assert as_json(one) == LAG.records()
    assert as_json(one, two) == {"lag": LAG.records(), "groups": []}
    assert as_json(one, document=True) == {"lag": LAG.records()}


def test_csv_has_the_names_of_json() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(LAG))))
    assert [set(row) for row in rows] == [set(record) for record in LAG.records()]
    assert (rows[0]["committed"], rows[1]["committed"]) == ("7", "")
    assert as_csv(Rows(GroupSummary)) == "group,type,protocol,state,members,lag,uncommitted,halt\n"


def test_a_lag_above_the_limit_is_noticed_where_brokers_name_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(GroupSummary, [GroupSummary("billing", "unknown", "consumer", "Stable", lag=7)])
    monkeypatch.setattr(Groups, "list", lambda *_, **__: rows)
    command = ["groups", "-b", "127.0.0.1:1", "--fail-above-lag"]
    assert [CliRunner().invoke(app, [*command, limit]).exit_code for limit in ("7", "6")] == [0, 3]


def test_a_table_without_a_terminal_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Output.TABLE, Listing("groups", Rows(GroupSummary, [GroupSummary(LONG, "classic", "consumer", "Stable")])))
    told = capsys.readouterr().out
    assert LONG in told
    assert "\x1b" not in told, "colours are for terminals"


def test_a_table_in_a_narrow_terminal_folds_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = Rows(GroupSummary, [GroupSummary(LONG, "classic", "consumer", "Stable")])
    emit(Output.TABLE, Listing("groups", rows, hidden=frozenset({"members", "lag", "uncommitted"})))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "".join(line.split()[0] for line in lines[2:] if line.strip()) == LONG
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("output", (Output.TABLE, Output.CSV))
def test_what_strangers_write_reaches_no_terminal_as_it_is(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\x9b31m\r\t\u202eorders\udc80"
    rows = Rows(GroupSummary, [GroupSummary(hostile, "classic", "consumer", "Stable")])
    emit(output, Listing("groups", rows, title=hostile))
    emit(output, Listing("groups", Rows(GroupSummary), empty=hostile))
    note(hostile)
    with pytest.raises(typer.Exit), exit_on_error():
        raise AuthenticationError(f"The registry says: {hostile}")
    told = "".join(capsys.readouterr())
    assert "".join(one for one in told if not one.isprintable() and one != "\n") == ""
    shown = r"\x1b]0;title\x07\x1b[2J\x9b31m\r\t\u202eorders\udc80"
    assert told.count(shown) == (5 if output is Output.TABLE else 3)


def test_a_listing_without_rows_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Output.TABLE, Listing("groups", Rows(GroupSummary), empty="There are no such groups."))
    assert capsys.readouterr().out == "There are no such groups.\n"
    emit(Output.JSON, Listing("groups", Rows(GroupSummary), empty="There are no such groups."))
    assert json.loads(capsys.readouterr().out) == []


def test_a_total_is_the_last_row_of_the_table_only(capsys: pytest.CaptureFixture[str]) -> None:
    listing = Listing("lag", LAG, "lag", frozenset({"start"}), {"topic": "all", "behind": 13})
    emit(Output.TABLE, listing)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["lag"]
    assert "start" not in lines[1]
    assert lines[-1] == ["all", "13"]
    emit(Output.CSV, listing)
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1_000_000, "1000000"),
        (1048576.0, "1048576"),
        (0.1, "0.1"),
        ((), "-"),
        (("a", "b"), "a, b"),
        ((TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)), "a 0; b 0-1"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_partitions_are_ranges() -> None:
    partitions = [TopicPartition("orders", n) for n in (0, 1, 2, 5, 7, 8)]
    assert partitions_text(partitions) == "orders 0-2, 5, 7-8"


def test_members_have_cells() -> None:
    member = MemberDescription("m", None, "c", "h", (TopicPartition("orders", 0),), ("orders",))
    assert as_csv(Rows(MemberDescription, [member])).splitlines()[1] == "m,,c,h,orders 0,orders,,,,,,,,m"


def test_topics_and_partitions() -> None:
    selection = parse_topics(["orders", "clicks:0,2", "orders:1"])
    assert selection == Selection(("orders",), (TopicPartition("clicks", 0), TopicPartition("clicks", 2)))
    assert selection.names == {"orders", "clicks"}
    assert selection.has("orders", 9)
    assert selection.has("clicks", 2)
    assert not selection.has("clicks", 1)
    assert parse_topics(None).has("anything", 0)


def test_in_a_narrow_terminal_texts_of_words_give_way_first_and_numbers_never() -> None:
    cells = [["offset", "123456789"], ["value", "a text of many words " * 5], ["id", "tgzj365dQ5ebo05WRuhKGw"]]
    numeric = [True, False, False]
    assert widths(cells, numeric, 200) == [9, 105, 22]
    assert widths(cells, numeric, 80) == [9, 43, 22]
    assert widths(cells, numeric, 40) == [9, 12, 13]
    assert widths(cells, numeric, 10) == [9, 8, 8]
