"""The builder of wheels says what it left out and why.

A published wheel has the notices of Rust's standard library, and says nothing of the machine that built it.
"""

import subprocess
import zipfile
from pathlib import Path

import pytest

from release import wheels
from release.targets import TARGETS, Target
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


def test_a_wheel_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "MOST_BYTES", 1000)
    wheel = tmp_path / "kernel.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernel.so", bytes(1000))
    with pytest.raises(ValueError, match=r"kernel\.whl has 1,\d+ bytes, above 1,000"):
        wheels.audit(wheel, TARGETS[0])


@pytest.mark.skipif(not cargo_works(), reason="there is no Rust here")
def test_rust_says_what_its_standard_library_contains() -> None:
    try:
        text = rust_notices()
    except CannotBuildError as error:
        pytest.skip(str(error))
    assert "Rust Standard Library" in text
    assert "hashbrown" in text


NOT_HERE = "aarch64-unknown-linux-musl"


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` writes into a folder of the test; nothing is compiled, and one target cannot be built."""

    def build(target: Target) -> None:
        if target.triple == NOT_HERE:
            raise CannotBuildError("no standard library for it")
        (tmp_path / f"{target.triple}.whl").write_bytes(b"a wheel")

    monkeypatch.setattr(wheels, "DIST", tmp_path)
    monkeypatch.setattr(wheels, "build_pure", lambda: (tmp_path / "pure.whl").write_bytes(b"a wheel"))
    monkeypatch.setattr(wheels, "build", build)


@pytest.mark.usefixtures("builds")
def test_a_target_that_cannot_be_built_here_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main([]) == 0
    said = capsys.readouterr().out
    assert f"left out   {NOT_HERE}: no standard library for it\n" in said
    assert said.count("built      ") == len(TARGETS)


@pytest.mark.usefixtures("builds")
def test_a_target_that_was_named_and_cannot_be_built_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main(["pure", NOT_HERE]) == 1
    assert capsys.readouterr().out.endswith(f"built      pure\nfailed     {NOT_HERE}: no standard library for it\n")


@pytest.mark.usefixtures("builds")
def test_what_comes_after_a_failure_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise subprocess.CalledProcessError(2, ["build"])

    monkeypatch.setattr(wheels, "build_pure", fails)
    assert wheels.main([]) == 1
    assert "failed     pure: Command '['build']' returned non-zero exit status 2." in capsys.readouterr().out
    assert "x86_64-pc-windows-msvc.whl\n" in (tmp_path / "SHA256SUMS").read_text()


def test_an_unknown_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main(["x86_64-unknown-linux"]) == 2
    assert capsys.readouterr().out.startswith("unknown: x86_64-unknown-linux. Known: pure, x86_64-unknown-linux-gnu")
