"""Finding strategies by name."""

import sys
from pathlib import Path

import pytest

from assignors import Assignor, ClusterMetadata, Subscription, load, names


@pytest.mark.parametrize(
    "name",
    [
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        "rack-aware",
        "copartition",
        "redundant",
        "weighted",
        "lag-balanced",
    ],
)
def test_built_in_names(name: str) -> None:
    assignor = load(name)
    assert assignor.name == name
    assert name in names()
    assert assignor.assign(ClusterMetadata({}), {}) == {}
    nothing = assignor.assign(ClusterMetadata({"t": 0}), {"A": Subscription(["t", "unknown"])})
    assert list(nothing) == ["A"]
    assert not nothing["A"].partitions


def test_a_class_by_its_module() -> None:
    assert load("examples.my_assignor:FewestBytesAssignor", {"rates": {"t": 5}}).name == "fewest-bytes"


def test_another_distributions_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kafkagroup.assignors]\nfewest-bytes = examples.my_assignor:FewestBytesAssignor\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert "fewest-bytes" in names()
    assert isinstance(load("fewest-bytes"), Assignor)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no assignor named 'stiky': use one of .*sticky"):
        load("stiky")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="cannot be loaded: No module named 'nowhere'"):
        load("nowhere:Assignor")


def test_options_it_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"'range' does not accept the options \{'copies': 2\}"):
        load("range", {"copies": 2})


def test_something_that_is_no_assignor() -> None:
    with pytest.raises(ValueError, match=r"not a subclass of assignors\.Assignor"):
        load("collections:OrderedDict")
