"""The pictures: what is on them, and the command that writes them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from typer.testing import CliRunner

from kafkagroup import plots
from kafkagroup.cli.watch import plot
from tests.support.incident import PARTITIONS, incident

PNG = b"\x89PNG"
SAMPLES = incident(120)


def texts(figure: Figure) -> str:
    found = [text for axes in figure.axes for text in (axes.get_title(loc="left"), axes.get_ylabel())]
    found += [text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels())]
    legends = [axes.get_legend() for axes in figure.axes]
    found += [text.get_text() for legend in legends if legend is not None for text in legend.get_texts()]
    return "\n".join(found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lag", ["billing in group billing: lag", "orders-0", "orders-7", "offsets"]),
        ("throughput", ["read", "written by producers", "quota", "whole quota used", "bytes a second"]),
        ("assignment", ["slot 0", "slot 3", "not this query's", "orders-7"]),
        ("latency", ["time from produce to commit", "oldest record", "median"]),
    ],
)
def test_each_picture_says_what_it_shows(name: str, said: list[str]) -> None:
    figure = getattr(plots, name)(SAMPLES)
    assert [word for word in said if word not in texts(figure)] == []
    assert figure._repr_png_().startswith(PNG), "a notebook shows it"


def test_the_heat_map_has_a_cell_for_each_partition_and_micro_batch() -> None:
    (mesh,) = [c for axes in plots.lag(SAMPLES).axes for c in axes.collections if c.get_array() is not None][:1]
    values = mesh.get_array()
    assert values is not None
    assert values.size == len(PARTITIONS) * len(SAMPLES)
    assert values.max() == max(one.lag for sample in SAMPLES for one in sample.partitions.values())


def test_all_axes_show_the_time_of_all_samples() -> None:
    # Lookups went on after the last micro-batch, which is drawn last.
    later = [replace(SAMPLES[-1], at=SAMPLES[-1].at + seconds, is_look=True) for seconds in (600, 610)]
    for axes in plots.overview([*SAMPLES, *later]).axes[:6]:
        begin, end = (num2date(x).timestamp() for x in axes.get_xlim())
        assert (begin, end) == pytest.approx((SAMPLES[0].at, later[-1].at + 10), abs=0.1)


def test_rebalances_are_named_lines() -> None:
    assert texts(plots.assignment(incident(260))).count("members") == 2


def test_one_sample_of_one_partition_is_drawn_too() -> None:
    first = SAMPLES[0]
    tiny = type(first)(**{name: getattr(first, name) for name in first.__slots__} | {"quota": {}, "partitions": {}})
    for samples in ([first], [tiny]):
        assert plots.overview(samples)._repr_png_().startswith(PNG)  # type: ignore[attr-defined]


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(plot)
    return made


def test_the_command_writes_the_picture_that_is_asked_for(tmp_path: Path) -> None:
    file, out = tmp_path / "samples.jsonl", tmp_path / "out.png"
    file.write_text("".join(json.dumps(one.to_json()) + "\n" for one in SAMPLES))
    done = CliRunner().invoke(app(), [str(file), "-o", str(out), "-p", "lag"])
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["nothing.jsonl", "-o", "out.png"], 1, "The samples cannot be read"),
        (["samples.jsonl", "-o", "out.png", "--query", "third"], 1, "There are no samples of third"),
        (["samples.jsonl", "-o", "out.doc"], 2, "--output"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    arguments: list[str], code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("samples.jsonl").write_text(json.dumps(SAMPLES[0].to_json()) + "\n")
    done = CliRunner().invoke(app(), arguments)
    assert done.exit_code == code
    assert reason in done.output
