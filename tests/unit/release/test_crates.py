"""The notices of a wheel name what is linked in, and nothing that only the compiler runs."""

import subprocess
from pathlib import Path

import pytest

from release.crates import linked, linked_crates, notices
from release.wheels import with_licence_files
from tests.support.native import cargo_works

CRATE = Path(__file__).parents[3] / "native"


def package(name: str, folder: Path, *, kind: str = "lib", licence: str = "MIT/Apache-2.0") -> dict[str, object]:
    """A package as `cargo metadata` describes it."""
    manifest = folder / name / "Cargo.toml"
    manifest.parent.mkdir()
    (manifest.parent / "LICENSE-MIT").write_text("The MIT licence.\n")
    (manifest.parent / "README.md").write_text("no licence")
    about = {"id": name, "name": name, "version": "1.0.0", "license": licence, "repository": None}
    return {**about, "manifest_path": str(manifest), "targets": [{"kind": [kind]}]}


def node(name: str, **dependencies: str | None) -> dict[str, object]:
    """A node of Cargo's resolution: its dependencies with their kind."""
    return {"id": name, "deps": [{"pkg": pkg, "dep_kinds": [{"kind": kind}]} for pkg, kind in dependencies.items()]}


def test_build_dependencies_and_macros_are_not_linked_in(tmp_path: Path) -> None:
    names = ["root", "codec", "inner", "cc", "tests", "below"]
    metadata = {
        "packages": [*(package(name, tmp_path) for name in names), package("macros", tmp_path, kind="proc-macro")],
        "resolve": {
            "root": "root",
            "nodes": [
                node("root", codec=None, macros=None, cc="build", tests="dev"),
                node("codec", inner=None),
                node("inner", codec="dev"),
                node("macros", below=None),
                *(node(name) for name in ("cc", "tests", "below")),
            ],
        },
    }
    crates = linked(metadata)
    assert [crate.name for crate in crates] == ["codec", "inner"]
    text = notices("kernel 1.0", crates)
    assert "- codec 1.0.0 (MIT OR Apache-2.0)\n- inner 1.0.0 (MIT OR Apache-2.0)\n" in text
    assert text.count("The MIT licence.") == 1


@pytest.mark.skipif(not cargo_works(), reason="Cargo resolves the crate's dependencies, and does not work here")
def test_every_crate_of_the_kernel_has_a_licence_and_its_text() -> None:
    try:
        crates = linked_crates(CRATE / "Cargo.toml", "x86_64-unknown-linux-gnu")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Cargo cannot fetch the sources: {error}")
    assert {"arrow-data", "pyo3", "zstd-sys", "crc32c"} <= {crate.name for crate in crates}
    assert not {crate.name for crate in crates} & {"cc", "pyo3-macros", "syn"}
    assert [crate.name for crate in crates if not crate.texts()] == []
    assert "see its sources" not in {crate.licence for crate in crates}


def test_the_metadata_names_each_licence_file_once() -> None:
    metadata = "Metadata-Version: 2.4\nName: kernel\nLicense-File: LICENSE\n\nText: of it\n"
    assert with_licence_files(metadata, ["LICENSE", "OTHERS"]) == (
        "Metadata-Version: 2.4\nName: kernel\nLicense-File: LICENSE\nLicense-File: OTHERS\n\nText: of it\n"
    )
