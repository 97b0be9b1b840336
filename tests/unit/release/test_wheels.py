"""A published wheel has the notices of Rust's standard library, and says nothing of the machine that built it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from release.wheels import CannotBuildError, folders_named, rust_notices
from tests.support.native import cargo_works


def test_folders_of_the_building_machine_are_found(tmp_path: Path) -> None:
    wheel = tmp_path / "kernel.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kernel.so", b"\x7fELF\0/home/ann/.cargo/registry/zstd.c\0cargo/registry/lz4.rs\0")
        archive.writestr("METADATA", "Home-page: https://example.org/home/annabel/kernel")
    folders = (Path("/home/ann"), Path("/home/ann/.cargo"), Path("/home/annabel/src"))
    with zipfile.ZipFile(wheel) as archive:
        assert folders_named(archive, folders) == {"kernel.so: /home/ann", "kernel.so: /home/ann/.cargo"}


@pytest.mark.skipif(not cargo_works(), reason="there is no Rust here")
def test_rust_says_what_its_standard_library_contains() -> None:
    try:
        text = rust_notices()
    except CannotBuildError as error:
        pytest.skip(str(error))
    assert "Rust Standard Library" in text
    assert "hashbrown" in text
